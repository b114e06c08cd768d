#include "motley/search/stages/replica_passes.h"

#include <algorithm>

namespace motley::search {
namespace {

/// Returns the bytes of a sample under way in the stage.
std::int64_t kept(const StageSums& sums, const PlannedStage& stage) {
  return sums.bytes(stage.unit, stage.first, stage.end).per_sample;
}

/// Returns what devices hold of all their stages, but for samples under way: weights that two of
/// them share once.
StageBytes seat_bytes(const StageSums& sums, const StageReplica& replica,
                      const std::vector<std::size_t>& stages) {
  const StageCosts& costs = sums.costs();
  const auto tied = costs.tied();
  StageBytes sum;
  std::size_t holders = 0;
  for (const std::size_t s : stages) {
    const PlannedStage& stage = replica.stages[s];
    const StageBytes bytes = sums.bytes(stage.unit, stage.first, stage.end);
    sum.fixed += bytes.fixed - costs.held(stage.unit).value;
    sum.workspace = std::max(sum.workspace, bytes.workspace);
    if (tied) holders += stage.has(tied->first) || stage.has(tied->second);
  }
  const std::size_t unit = replica.stages[stages.front()].unit;
  sum.fixed += costs.held(unit).value;
  if (holders == 2) sum.fixed -= costs.bytes(unit)[tied->second].states.value;
  return sum;
}

/// Of stages that share devices: all micro-batches, and as many fewer as memory says, first of
/// those that have most beside what 1F1B has of them.
void set_most_in_flight(const StageSums& sums, const StageReplica& replica, std::int64_t largest,
                        plan::PipelineWork& work) {
  for (const std::vector<std::size_t>& stages : stages_by_seat(replica)) {
    const StageBytes held = seat_bytes(sums, replica, stages);
    std::int64_t left =
        sums.memory(replica.stages[stages.front()].unit).value - held.total(largest, 0);
    for (const std::size_t s : stages) {
      work.most_in_flight[s] = work.micro_batches();
      left -= largest * kept(sums, replica.stages[s]) * work.micro_batches();
    }
    while (left < 0) {
      std::size_t most = stages.front();
      const auto part = [&](std::size_t s) {
        return static_cast<double>(work.most_in_flight[s] - 1) /
               static_cast<double>(replica.stages.size() - s);
      };
      for (const std::size_t s : stages)
        if (part(s) > part(most)) most = s;
      if (work.most_in_flight[most] == 1) break;
      --work.most_in_flight[most];
      left += largest * kept(sums, replica.stages[most]);
    }
  }
}

}  // namespace

Result<ReplicaPasses> price_passes(const StageSums& sums, const StageReplica& replica,
                                   const std::vector<PlacedStage>& placed,
                                   StageTransfers& transfers) {
  ReplicaPasses passes;
  passes.sizes = micro_batch_sizes(replica);
  passes.largest = *std::max_element(passes.sizes.begin(), passes.sizes.end());
  plan::PipelineWork& work = passes.work;
  const auto count = static_cast<std::int64_t>(passes.sizes.size());
  for (std::size_t s = 0; s < replica.stages.size(); ++s) {
    const PlannedStage& stage = replica.stages[s];
    auto& forward = work.forward.emplace_back();
    auto& backward = work.backward.emplace_back();
    for (const std::int64_t size : passes.sizes) {
      const WorkSums& of_size = sums.work(stage.unit, size);
      forward.push_back(of_size.forward[stage.end] - of_size.forward[stage.first]);
      backward.push_back(of_size.backward[stage.end] - of_size.backward[stage.first]);
    }
    passes.update.push_back(update_seconds(sums, stage, passes.largest));
    work.most_in_flight.push_back(
        std::max(sums.most_in_flight(stage.unit, stage.first, stage.end, passes.largest, count),
                 static_cast<std::int64_t>(replica.stages.size() - s)));
    work.seats.push_back(replica.seat_of(s));
    if (s + 1 == replica.stages.size()) continue;
    if (replica.seat_of(s) == replica.seat_of(s + 1)) {
      work.activation.push_back(0);
      work.gradient.push_back(0);
      continue;
    }
    const Bytes bytes = sums.output(stage.unit, stage.end) * passes.largest;
    MOTLEY_ASSIGN(const double out, transfers.message_seconds(placed[s], placed[s + 1], bytes));
    MOTLEY_ASSIGN(const double back, transfers.message_seconds(placed[s + 1], placed[s], bytes));
    work.activation.push_back(out);
    work.gradient.push_back(back);
  }
  if (is_interleaved(replica)) set_most_in_flight(sums, replica, passes.largest, work);
  return passes;
}

Bytes peak_of(const StageSums& sums, const StageReplica& replica, std::int64_t largest_micro_batch,
              const std::vector<std::size_t>& stages, const plan::PassOrder& order) {
  std::vector<std::int64_t> each(replica.stages.size(), 0);
  for (const std::size_t s : stages) each[s] = kept(sums, replica.stages[s]);
  std::int64_t now = 0, most = 0;
  for (const plan::StagePass& pass : order) {
    const std::int64_t bytes = each[static_cast<std::size_t>(pass.stage)];
    now += pass.is_backward ? -bytes : bytes;
    most = std::max(most, now);
  }
  return Bytes(seat_bytes(sums, replica, stages).total(largest_micro_batch, 0) +
               largest_micro_batch * most);
}

double update_seconds(const StageSums& sums, const PlannedStage& stage, std::int64_t micro_batch) {
  const WorkSums& work = sums.work(stage.unit, micro_batch);
  return work.update[stage.end] - work.update[stage.first];
}

}  // namespace motley::search
