#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "motley/search/stages/passes/mix.h"
#include "motley/search/stages/passes/search_space.h"
#include "motley/search/stages/passes/shape_estimates.h"

namespace motley::search {

/// From the fastest mixes on by other counts of their parts, as long as the expected step gets
/// less: by one, by as many as fill a host with their first stages, or none. Adds what it finds.
Result<void> change_counts(const SearchSpace& space, ShapeEstimates& estimates,
                           RankedMixes& ranked);

/// Moves layers between neighbouring stages of the parts of the fastest mixes, as long as the
/// expected step gets less.
Result<void> refine_cuts(const SearchSpace& space, ShapeEstimates& estimates, RankedMixes& ranked);

/// Mixes are ranked by rising expected step, and so is what a pass leaves.
struct MixImprover {
  std::string_view name;
  Result<void> (*improve)(const SearchSpace& space, ShapeEstimates& estimates, RankedMixes& ranked);
};
/// In the order in which they run.
inline constexpr MixImprover kMixImprovers[] = {{"counts", change_counts}, {"cuts", refine_cuts}};

/// What an improver of plans reads.
struct ImproverInput {
  const SearchSpace& space;
  const ShapeEstimates& estimates;
  const std::vector<PricedStagePlan>& plans;
  std::size_t first;                        ///< of the plans, those that no pass before has seen
  const std::vector<ReplicaShape>& turned;  ///< of single replicas that may be good interleaved
};

struct ImprovedPlans {
  std::vector<PricedStagePlan> plans;  ///< beside those that there are
  std::int64_t simulated = 0;
  Seconds lower_bound;     ///< of plans whose devices have one stage each
  bool is_proved = false;  ///< nothing without interleaved stages is faster
};

/// Of few devices: from the best plans on by single moves (plan_moves.h), whatever the model says,
/// as long as one is faster by the simulator. The first that is is taken.
ImprovedPlans make_moves(const ImproverInput& input);

/// Gives samples of the replica that ends its passes last to the one that ends them first, one or a
/// micro-batch, as long as the best plan gets faster by it.
ImprovedPlans level_samples(const ImproverInput& input);

/// Of few devices: all that the bound leaves is tried or ruled out (plan_proof.h); where no plan
/// was found, in ever more time.
ImprovedPlans prove_best(const ImproverInput& input);

/// Interleaves the stages of the plans that hope most for it (interleaving.h).
ImprovedPlans interleave_stages(const ImproverInput& input);

struct PlanImprover {
  std::string_view name;
  ImprovedPlans (*improve)(const ImproverInput& input);
};
/// In the order in which they run.
inline constexpr PlanImprover kPlanImprovers[] = {{"moves", make_moves},
                                                  {"level", level_samples},
                                                  {"proof", prove_best},
                                                  {"interleaving", interleave_stages}};

}  // namespace motley::search
