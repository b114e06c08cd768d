// Dropout: masks are drawn by the element's place in the global batch, however it is split.

#include <optional>

#include "motley/synth/operators/plain.h"
#include "motley/synth/operators/rewrite.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::Slab;

/// Form in which a value would be cut by samples; empty if it holds none. Where it holds them, the
/// same elements are named by sample as by place in all.
std::optional<Form> sample_form(RankStep& rank, ValueId value) {
  const std::vector<graph::SizeExpr>& shape = rank.graph().value(value).shape;
  const std::int64_t batch = rank.step().sharding.batch;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t size = rank.size(shape[d]);
    if (shape[d].depends_on("batch") && size % batch == 0)
      return Form{FormKind::kSharded, static_cast<int>(d), 1, batch, size / batch};
  }
  return std::nullopt;
}

/// (x, p, train): x seen as [outer, extent, inner], of which the extent is split; a whole x without
/// samples as one that all devices share.
void write_dropout(RankOperator& op) {
  RankStep& rank = op.rank();
  const Form& form = op.operand_form(0);
  const auto x = op.given<ValueId>(0);
  Slab slab{1, 1, rank.whole_elements(x)};
  std::int64_t first = 0;
  if (form.kind == FormKind::kSharded) {
    slab = slab_of(rank.whole_shape(x), form);
    first = rank.begin(slab.extent);
  } else if (const auto samples = sample_form(rank, x)) {
    slab = slab_of(rank.whole_shape(x), *samples);
  }
  const Arguments given = op.arguments();
  if (given.size() > 2 && given[2] == program::Argument{false}) return write_plain(op);
  OpId drawn_by = op.id();
  if (rank.step().copies != nullptr) {
    // Samples lead, so a micro-batch is a stretch of all elements.
    const Copy& copy = (*rank.step().copies)[op.id().index()];
    drawn_by = copy.of;
    first += copy.micro_batch * slab.before * slab.extent;
  }
  std::vector<BufferId> outputs;
  for (std::size_t r = 0; r < op.op().outputs.size(); ++r) outputs.push_back(op.define(r));
  op.write("motley::dropout",
           {given[0],
            given[1],
            number(drawn_by.value),
            {slab.before},
            {slab.after},
            number(first),
            number(slab.extent)},
           std::move(outputs));
}

}  // namespace

Rewrites dropout_rewrites() {
  static constexpr Rewrite kDropout[] = {
      {"aten::native_dropout", takes_any, write_dropout, Rewrite::When::kAlways}};
  return kDropout;
}

}  // namespace motley::synth
