#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/plan/pass_order.h"
#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// One stage of one replica in a simulated step; what is neither is waiting.
struct StageSpan {
  Seconds compute;             ///< forwards, backwards, update
  Seconds first;               ///< begin of its first forward
  Seconds last;                ///< end of its last backward
  Seconds end;                 ///< of its update
  Bytes peak;                  ///< of each member, with all its stages
  std::int64_t in_flight = 0;  ///< micro-batches at most
};

struct StagePrice {
  Seconds step;
  Seconds exchange;                           ///< from the last backward of all to the last sum
  std::vector<std::vector<StageSpan>> spans;  ///< [replica][stage]
  Bytes peak;                                 ///< the fullest device's
  bool fits = true;                           ///< into every pool's memory
};

/// A plan and what it takes.
struct PricedStagePlan {
  StagePlan plan;
  StagePrice price;
  /// Of a search beside the first one: who judges plans by other means looks at the first ones as
  /// if there were no others.
  bool is_further = false;
};

/// Prices plans of stages on the simulator (simulate/task_graph.h, find_times.h); there is no other
/// clock. A compute lane for each stage of each replica, or for all stages that share devices, runs
/// their passes in the order of the replica's schedule; a lane for each direction between
/// neighbours carries messages, which overlap with computation; each is a flow over the sending
/// host's way out and the receiving host's way in, or stays inside a host. When all that hold a
/// stretch of layers have done their last backward, its gradients are summed along a ring that
/// enters each host once: a flow of 2 (n - 1) / n bytes over all of these hosts, at no more than
/// its slowest hop's rate; a stage does one such sum after the other. Tied weights in two stages
/// are summed between these first. The update of a stage follows the last of its sums.
class StageEvaluator {
 public:
  /// Both must outlive it.
  explicit StageEvaluator(const StageSums& sums) : sums_(&sums) {}

  /// Usage error for a plan that verify_stage_plan refuses, or that needs a link that is not there
  /// ("no link from v100-16g to t4"). O(passes), with a factor log(flows under way) for messages.
  Result<StagePrice> price(const StagePlan& plan) const;

  /// A replica that is alone, from the first forward to the last backward.
  Result<StagePrice> run_alone(const StageReplica& replica) const;
  /// Its step.
  Result<Seconds> pipeline(const StageReplica& replica) const;

  /// The end of the step if each stage ends its last backward when `last` [replica][stage] says:
  /// what follows, exchanges and updates, with nothing else under way. Of a plan that is not
  /// interleaved. O(stretches of layers).
  Result<Seconds> end_after(const StagePlan& plan,
                            const std::vector<std::vector<Seconds>>& last) const;

  /// What summing the gradients of the layers that all first stages have takes when nothing else is
  /// under way; 0 for one replica.
  Result<Seconds> first_exchange(const StagePlan& plan) const;

  /// What it takes at least, by the simulated times of its replicas alone: the gradients of the
  /// first layers are summed when all have ended, then come the updates.
  Result<Seconds> least_step(const StagePlan& plan, const std::vector<Seconds>& alone) const;

  /// Gives a replica the schedule that is best for it alone: list scheduling where it is quicker
  /// than the others, so never worse than 1F1B or H-1F1B; of stages that share devices the best of
  /// kInterleavedSchedules. Its time, as `pipeline` has it.
  Result<Seconds> choose_schedule(StageReplica& replica) const;

 private:
  const StageSums* sums_;
};

}  // namespace motley::search
