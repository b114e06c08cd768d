#include "motley/synth/stages/boundary_transfer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace motley::synth {

using graph::Form;
using graph::FormKind;
using graph::Slab;

const std::string& BoundaryTransfer::label_of(std::size_t value) const {
  const BoundaryValue& about = stages_.step.boundary_values[value];
  const graph::Graph& maker = stages_.step.stages[about.from].graph;
  return maker.op(maker.value(about.made).producer).module;
}

Form BoundaryTransfer::form_on(std::size_t stage, std::size_t value) const {
  return stages_.step.stages[stage].ranks.size() == 1 ? graph::kWholeForm : stages_.forms[value];
}

void BoundaryTransfer::pass_on(std::size_t value) {
  const BoundaryValue& about = stages_.step.boundary_values[value];
  const StageGraph& maker = stages_.step.stages[about.from];
  const StageGraph& reader = stages_.step.stages[about.to];
  // All makers begin what exchanges bring it into the form.
  std::vector<BufferId> made(maker.ranks.size());
  for (std::size_t from = 0; from < made.size(); ++from)
    if (programs_.is_lowered(maker.ranks[from]))
      made[from] = programs_.step(about.from, from).in_form(about.made, form_on(about.from, value));
  std::vector<std::vector<BufferId>> got(reader.ranks.size());  // by reader, in order
  for (const BoundaryPiece& piece : stages_.find_pieces(value))
    if (programs_.is_lowered(reader.ranks[piece.to]))
      got[piece.to].push_back(send(value, piece, made[piece.from]));
  const bool is_output =
      std::any_of(reader.graph.outputs.begin(), reader.graph.outputs.end(),
                  [&](const graph::Output& output) { return output.value == about.read; });
  for (std::size_t to = 0; to < got.size(); ++to) {
    if (!programs_.is_lowered(reader.ranks[to])) continue;
    received_[stages_.first_seat[about.to] + to].emplace(about.read,
                                                         Received{value, std::move(got[to])});
    if (is_output) join({about.to, to, reader.ranks[to]}, about.read);
  }
}

BufferId BoundaryTransfer::send(std::size_t value, const BoundaryPiece& piece, BufferId made) {
  const BoundaryValue& about = stages_.step.boundary_values[value];
  const Form& form = stages_.forms[value];
  RankStep& from = programs_.step(about.from, piece.from);
  RankStep& to = programs_.step(about.to, piece.to);
  Shape shape = from.whole_shape(about.made);
  if (form.kind == FormKind::kSharded) {
    const Slab slab = graph::slab_of(shape, form);
    const std::pair rows(piece.begin, piece.end);
    const std::pair own = stages_.span(about.from, piece.from, form.extent);
    shape = {slab.before, piece.end - piece.begin, slab.after};
    if (rows != own)
      made = from.builder().part(made, slab, piece.begin - own.first, shape, label_of(value));
    if (rows == stages_.span(about.to, piece.to, form.extent))
      shape = to.shape_on(piece.to, about.read, form_on(about.to, value));
  }
  const std::size_t sender = stages_.step.stages[about.from].ranks[piece.from];
  const std::size_t receiver = stages_.step.stages[about.to].ranks[piece.to];
  return sender == receiver
             ? to.builder().seen_as(made, shape, label_of(value))
             : programs_.transfer(sender, receiver, made, std::move(shape), label_of(value));
}

void BoundaryTransfer::join_operands(const Seat& seat, const graph::Op& op) {
  graph::for_each_value(op.arguments, [&](ValueId value) { join(seat, value); });
}

void BoundaryTransfer::join(const Seat& seat, ValueId value) {
  auto& received = received_[stages_.first_seat[seat.stage] + seat.member];
  const auto found = received.find(value);
  if (found == received.end()) return;
  const auto [boundary_value, pieces] = std::move(received.extract(found).mapped());
  const std::string& label = label_of(boundary_value);
  RankStep& rank = programs_.step(seat.stage, seat.member);
  ProgramBuilder& builder = rank.builder();
  const Shape shape = rank.shape_on(seat.member, value, form_on(seat.stage, boundary_value));
  if (pieces.empty())
    return rank.set_value(value, builder.zeros(shape, rank.graph().value(value).dtype, label));
  rank.set_value(value, builder.seen_as(builder.join_rows(pieces, label), shape, label));
}

}  // namespace motley::synth
