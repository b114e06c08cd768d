#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/search/stages/shapes/shape_search.h"
#include "motley/search/stages/stage_evaluator.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Which plan of stages takes the least time? The costs are not owned.
struct StageQuestion {
  const StageCosts* costs = nullptr;
  std::int64_t global_batch = 0;
  ShapeLimits limits;          ///< narrower spaces, to compare with
  bool equal_samples = false;  ///< all replicas get the same number of samples, rounded up
  bool interleaves = true;     ///< devices may have several stages of a replica
  /// Is a lower bound wanted? Without it nothing is proved for its sake, and it is that of rates.
  bool is_bounded = true;
  /// A step that is reached otherwise: mixes that are expected to take longer are not timed, and no
  /// plan may be found.
  std::optional<Seconds> known = {};
  /// Passes that are left out, by stage_passes() (single_search.h): bench/passes weighs them.
  std::vector<std::string> without = {};
};

inline constexpr double kOptimalGap = 1e-3;  ///< to the bound

enum class StageReason {
  kOptimal,  ///< within kOptimalGap of the bound, or all other plans were ruled out (plan_proof.h),
             ///< which is said of plans without interleaving only
  kFeasible,    ///< nothing better was found
  kInfeasible,  ///< no replica fits; `why` says what is missing
};

struct StageOutcome {
  StageReason reason = StageReason::kInfeasible;
  std::optional<PricedStagePlan> best;
  std::vector<PricedStagePlan> runner_ups;  ///< of other shapes, best first
  Seconds lower_bound;                      ///< of every plan of the space
  /// Of every plan whose devices have one stage each, where the space has others, too.
  std::optional<Seconds> apart_bound;
  std::int64_t programs = 0;     ///< dynamic programs over layers
  std::int64_t shapes = 0;       ///< different replica shapes that were found good
  std::int64_t simulated = 0;    ///< plans timed by the simulator
  std::vector<std::string> why;  ///< sentences for people
  double gap() const {
    return best && lower_bound.value > 0 ? best->price.step / lower_bound - 1 : 0;
  }
};

/// Space: any number of replicas; each has stages of consecutive layers, each stage on one unit
/// (StageCosts::units), units with several stages in turns if `interleaves`; a micro-batch of
/// StageCosts::micro_batches; any number of samples, of which what is left over after full
/// micro-batches forms a smaller one if there are two full ones, or one stage and a full one;
/// memory for 1F1B. Devices may stay idle.
///
/// Where hosts reach each other faster in zones than between these (zones.h), plans of which each
/// zone has a stretch of the layers are searched for themselves, too: shapes are priced by devices
/// alone, and what a sum over all zones takes no price of a device says.
///
/// Method: for a time T the most samples by column generation (sample_bound.h); the largest T that
/// is proved impossible is the lower bound. The shapes found on the way are put together in whole
/// numbers; mixes are ranked by their expected step, tried with other counts and cuts, get samples
/// so that all end together, places in hosts and schedules, and are timed by the simulator
/// (StageEvaluator). Of few devices all other plans are tried or ruled out (plan_proof.h). Some of
/// the plans found then get stages in turns (interleaving.h), so none is worse for that; of plans
/// that have such the lower bound is that of rates. Deterministic.
///
/// Usage error for a batch below 1.
Result<StageOutcome> find_stage_plan(const StageQuestion& question);

}  // namespace motley::search
