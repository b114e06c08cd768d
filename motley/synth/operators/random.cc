// Random draws depend on the draw's number and the element's place in the whole batch, however the
// batch is split over devices and micro-batches.

#include "motley/synth/operators/plain.h"
#include "motley/synth/operators/rewrite.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::Slab;

/// Places of a result's local elements among all (docs/formats/program.md).
struct DrawnPlace {
  Slab slab;  ///< local part of the micro-batch's middle dimension
  std::int64_t first = 0;
  std::int64_t run = 1, skip = 0, stride = 1;  ///< of the micro-batch in the whole batch
};

DrawnPlace place_of(RankOperator& op) {
  RankStep& rank = op.rank();
  const Shape shape = rank.whole_shape(op.op().outputs[0]);
  const Form& form = op.result_form(0);
  DrawnPlace place{{1, 1, rank.whole_elements(op.op().outputs[0])}};
  if (form.kind == FormKind::kSharded) {
    place.slab = slab_of(shape, form);
    place.first = rank.begin(place.slab.extent);
  }
  if (rank.step().copies == nullptr) return place;
  const Copy& copy = (*rank.step().copies)[op.id().index()];
  if (copy.samples.kind != FormKind::kSharded) return place;
  // A micro-batch has a range of the whole batch's samples, in each of `before` rows.
  Form here = copy.samples;
  here.extent = copy.stretch.count;
  const Slab samples = slab_of(shape, here);
  place.run = samples.extent * samples.after;
  place.skip = copy.stretch.first * samples.after;
  place.stride = copy.samples.extent * samples.after;
  return place;
}

void write_drawn(RankOperator& op, Arguments arguments, const program::Argument& draw) {
  const DrawnPlace place = place_of(op);
  for (program::Argument each :
       {number(std::get<std::int64_t>(draw.value)), program::Argument{place.slab.before},
        program::Argument{place.slab.after}, number(place.first), number(place.slab.extent),
        number(place.run), number(place.skip), number(place.stride)})
    arguments.push_back(std::move(each));
  std::vector<BufferId> outputs;
  for (std::size_t r = 0; r < op.op().outputs.size(); ++r) outputs.push_back(op.define(r));
  op.write(op.op().name, std::move(arguments), std::move(outputs));
}

/// (x, p, draw)
void write_dropout(RankOperator& op) {
  const Arguments given = op.arguments();
  write_drawn(op, {given[0], given[1]}, given[2]);
}

/// (distribution, shape, dtype, draw)
void write_random(RankOperator& op) {
  const Arguments given = op.arguments();
  write_drawn(op, {given[0]}, given[3]);
}

}  // namespace

Rewrites random_rewrites() {
  static constexpr Rewrite kRandom[] = {
      {"motley::dropout", takes_any, write_dropout, Rewrite::When::kAlways},
      {"motley::random", takes_any, write_random, Rewrite::When::kAlways}};
  return kRandom;
}

}  // namespace motley::synth
