#include "motley/search/stages/gradient_sums.h"

#include <algorithm>
#include <set>

namespace motley::search {
namespace {

void sort_by_host(std::vector<PlacedStage>& stages) {
  std::stable_sort(stages.begin(), stages.end(), [](const PlacedStage& a, const PlacedStage& b) {
    return std::pair(a.unit->pool(), a.host) < std::pair(b.unit->pool(), b.host);
  });
}

/// Returns what a transfer takes when nothing else is under way.
double seconds_alone(const cost::Transfer& transfer) {
  double sum = 0;
  for (const cost::TransferPhase& phase : transfer.phases) {
    sum += phase.delay.value;
    for (const cost::Flow& flow : phase.flows) sum += flow.bytes / flow.most_rate;
  }
  return sum;
}

/// Returns the bytes of layers [first, end) of a stage. A layer whose weights are another's of this
/// stage exchanges nothing.
std::int64_t own_gradients(const StageSums& sums, const PlannedStage& stage, std::size_t first,
                           std::size_t end) {
  std::int64_t own = sums.gradients(stage.unit, first, end);
  if (const auto tied = sums.costs().tied(); tied && stage.first <= tied->first &&
                                             tied->second < stage.end && first <= tied->second &&
                                             tied->second < end && tied->first < first)
    own -= sums.gradients(stage.unit, tied->second, tied->second + 1);
  return own;
}

std::vector<GradientSum> in_order(std::vector<GradientSum> sums, const PlacedStages& placed) {
  std::vector<std::vector<double>> free;
  for (const std::vector<PlacedStage>& replica : placed) free.emplace_back(replica.size(), 0.0);
  const auto earliest = [&](std::size_t number) {
    double time = 0;
    for (const auto& [r, s] : sums[number].members) time = std::max(time, free[r][s]);
    return time;
  };
  std::set<std::pair<double, std::size_t>> left;
  for (std::size_t i = 0; i < sums.size(); ++i) left.emplace(0.0, i);
  std::vector<GradientSum> ordered;
  while (!left.empty()) {
    const auto [noted, number] = *left.begin();
    left.erase(left.begin());
    if (const double time = earliest(number); time > noted) {
      left.emplace(time, number);
      continue;
    }
    GradientSum& sum = sums[number];
    const double end = noted + seconds_alone(sum.transfer);
    for (const auto& [r, s] : sum.members) free[r][s] = end;
    ordered.push_back(std::move(sum));
  }
  return ordered;
}

}  // namespace

Result<std::vector<GradientSum>> find_tied_sums(const StageSums& sums, const StagePlan& plan,
                                                const PlacedStages& placed,
                                                StageTransfers& transfers) {
  std::vector<GradientSum> found;
  const auto tied = sums.costs().tied();
  if (!tied) return found;
  for (std::size_t r = 0; r < placed.size(); ++r) {
    std::vector<std::size_t> holders;
    for (std::size_t s = 0; s < placed[r].size(); ++s)
      for (const std::size_t layer : {tied->first, tied->second})
        if (placed[r][s].stage->has(layer)) holders.push_back(s);
    const StageReplica& replica = plan.replicas[r];
    if (holders.size() < 2 || replica.seat_of(holders[0]) == replica.seat_of(holders[1])) continue;
    const PlacedStage &one = placed[r][holders[0]], &other = placed[r][holders[1]];
    const auto bytes =
        static_cast<double>(sums.gradients(other.stage->unit, tied->second, tied->second + 1));
    MOTLEY_ASSIGN(cost::Transfer transfer, transfers.ring({one, other}, bytes));
    found.push_back({{{r, holders[0]}, {r, holders[1]}}, std::move(transfer)});
  }
  return found;
}

Result<std::vector<GradientSum>> find_replica_sums(const StageSums& sums,
                                                   const PlacedStages& placed,
                                                   StageTransfers& transfers) {
  std::vector<GradientSum> found;
  if (placed.size() < 2) return found;
  std::set<std::size_t> cuts = {sums.costs().layers()};
  for (const std::vector<PlacedStage>& replica : placed)
    for (const PlacedStage& each : replica) cuts.insert(each.stage->first);
  std::vector<std::size_t> next(placed.size());
  for (auto at = cuts.begin(); std::next(at) != cuts.end(); ++at) {
    GradientSum sum;
    std::vector<PlacedStage> holders;
    double bytes = 0;
    for (std::size_t r = 0; r < placed.size(); ++r) {
      while (placed[r][next[r]].stage->end <= *at) ++next[r];
      sum.members.emplace_back(r, next[r]);
      holders.push_back(placed[r][next[r]]);
      const std::int64_t own = own_gradients(sums, *holders.back().stage, *at, *std::next(at));
      bytes = std::max(bytes, static_cast<double>(own));
    }
    if (bytes <= 0) continue;
    sort_by_host(holders);
    MOTLEY_ASSIGN(sum.transfer, transfers.ring(holders, bytes));
    found.push_back(std::move(sum));
  }
  std::reverse(found.begin(), found.end());
  return in_order(std::move(found), placed);
}

Result<Seconds> first_sum(const StageSums& sums, const PlacedStages& placed) {
  std::size_t end = sums.costs().layers();
  std::int64_t bytes = 0;
  std::vector<PlacedStage> stages;
  for (const std::vector<PlacedStage>& replica : placed) {
    stages.push_back(replica.front());
    end = std::min(end, replica.front().stage->end);
  }
  sort_by_host(stages);
  for (const PlacedStage& each : stages)
    bytes = std::max(bytes, sums.gradients(each.stage->unit, 0, end));
  if (stages.size() < 2 || bytes == 0) return Seconds(0);
  StageTransfers transfers(sums.costs(), LinkSharing::kAlone);
  MOTLEY_ASSIGN(const cost::Transfer ring, transfers.ring(stages, static_cast<double>(bytes)));
  return Seconds(seconds_alone(ring));
}

}  // namespace motley::search
