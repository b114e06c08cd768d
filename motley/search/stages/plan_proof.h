#pragma once

#include <cstdint>
#include <optional>

#include "motley/search/stages/shapes/shape_search.h"
#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {

/// What is known before, and where to give up.
struct ProofQuestion {
  std::int64_t global_batch = 1;
  Seconds known;                         ///< step of a plan: only quicker ones are looked for
  std::int64_t most_stages = 300'000;    ///< put in front of others while replicas are listed
  std::int64_t most_passes = 8'000'000;  ///< of micro-batches through stages, simulated
};

struct ProofOutcome {
  /// No plan is quicker than `best`, or than what was known, in whatever places and schedules.
  bool is_complete = false;
  std::optional<PricedStagePlan> best;  ///< quicker than what was known
  /// By the model of a replica in whole replicas and samples; 0 where not all replicas were listed.
  Seconds lower_bound;
  std::int64_t simulated = 0;  ///< plans
};

/// Branch and bound over all plans of few devices. Replicas with their samples that the model
/// (ShapeSearch::seconds, nothing exchanged) does not show to be too slow are listed, less those
/// whose other devices cannot do the other samples. A table over devices used and samples done,
///
///     least(d, m) = min over replicas on e devices with n samples of max(model, least(d - e, m -
///     n))
///
/// is what m samples take on d devices at least; least(all, batch) bounds every plan. Replicas are
/// put together where the table leaves hope, the most hopeful first; each is simulated alone before
/// any plan with it is, as no plan is quicker than its slowest replica alone.
///
/// Cost: that of the simulator for what the model leaves, within the limits of the question.
ProofOutcome prove_plans(const ShapeSearch& search, const StageEvaluator& evaluator,
                         const ProofQuestion& question);

}  // namespace motley::search
