#include "motley/synth/stages/stage_kinds.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;

/// Where a tensor ends of which a device has all.
constexpr std::int64_t kWhole = std::numeric_limits<std::int64_t>::max();

std::set<std::int64_t> cut_extents(const Sharding& sharding) {
  std::set<std::int64_t> extents;
  const auto add = [&](const std::vector<Form>& forms) {
    for (const Form& form : forms)
      if (form.kind == FormKind::kSharded) extents.insert(form.extent);
  };
  add(sharding.sources);
  for (const graph::Strategy& strategy : sharding.ops) {
    add(strategy.operands);
    add(strategy.results);
  }
  return extents;
}

void note_seats(ShardedStages& stages, IdenticalRanks& identical) {
  std::vector<std::set<std::int64_t>> extents;  // by stage
  for (const ShardedStage& stage : stages.stages)
    extents.push_back(cut_extents(stage.found.sharding));
  for (const auto& [s, member, rank] : stages.seats) {
    const std::vector<double>& shares = stages.stages[s].found.sharding.shares;
    Parts& parts = *stages.stages[s].parts;
    identical.note(rank, static_cast<std::int64_t>(s));
    identical.note(rank, std::find(shares.begin(), shares.end(), shares[member]) - shares.begin());
    for (const std::int64_t extent : extents[s]) identical.note(rank, parts.of(extent)[member]);
    // What counts once is its keeper's, or the first one's.
    identical.note(rank, member == parts.keeper() ? 1 : 0);
    identical.note(rank, member == 0 ? 1 : 0);
  }
}

void join_boundary_values(ShardedStages& stages, IdenticalRanks& identical) {
  for (std::size_t p = 0; p < stages.forms.size(); ++p) {
    const BoundaryValue& value = stages.step.boundary_values[p];
    for (const BoundaryPiece& piece : stages.find_pieces(p))
      identical.join({stages.step.stages[value.from].ranks[piece.from],
                      stages.step.stages[value.to].ranks[piece.to]},
                     {static_cast<std::int64_t>(p), piece.end - piece.begin});
  }
}

/// Parameters of several stages: whoever has the same rows sums their gradients. What nobody has
/// cut is summed by all.
void join_holders(ShardedStages& stages, IdenticalRanks& identical) {
  struct Holder {
    std::size_t rank;
    std::int64_t begin, end;
  };
  struct Held {
    std::set<std::size_t> stages;
    bool is_cut = false;  // by any of them
    std::vector<Holder> holders;
  };
  std::map<std::string, Held> found;
  for (const Seat& seat : stages.seats)
    for (const graph::Output& output : stages.graph_of(seat).outputs) {
      if (output.kind != graph::OutputKind::kGradient) continue;
      Held& held = found[stages.graph_of(seat).value(output.of).name];
      held.stages.insert(seat.stage);
      const Form& form = stages.stages[seat.stage].step->home(output.of);
      const bool is_cut = form.kind == FormKind::kSharded;
      held.is_cut = held.is_cut || is_cut;
      const auto [begin, end] = is_cut ? stages.span(seat.stage, seat.member, form.extent)
                                       : std::pair(std::int64_t{0}, kWhole);
      held.holders.push_back({seat.rank, begin, end});
    }
  auto number = static_cast<std::int64_t>(stages.forms.size());
  for (const auto& [name, held] : found) {
    ++number;
    if (held.stages.size() < 2 || !held.is_cut) continue;
    for (std::size_t i = 0; i < held.holders.size(); ++i)
      for (std::size_t other = i + 1; other < held.holders.size(); ++other) {
        const Holder &a = held.holders[i], &b = held.holders[other];
        const std::int64_t both = std::min(a.end, b.end) - std::max(a.begin, b.begin);
        if (both > 0) identical.join({a.rank, b.rank}, {number, both});
      }
  }
}

}  // namespace

std::vector<IdenticalRanks::StandIn> find_stage_kinds(ShardedStages& stages,
                                                      const std::vector<int>& classes) {
  IdenticalRanks identical(classes.size());
  for (std::size_t rank = 0; rank < classes.size(); ++rank) identical.note(rank, classes[rank]);
  note_seats(stages, identical);
  join_boundary_values(stages, identical);
  join_holders(stages, identical);
  return identical.find();
}

}  // namespace motley::synth
