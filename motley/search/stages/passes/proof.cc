#include <algorithm>

#include "motley/search/stages/passes/improvers.h"
#include "motley/search/stages/plan_proof.h"
#include "motley/search/stages/shapes/sample_bound.h"

namespace motley::search {
namespace {

/// Times the time in which all plans were ruled out, where they are looked for next; and how often:
/// a plan of 32 times the least step may be all that there is.
constexpr double kWider = 2;
constexpr int kProofRounds = 6;

}  // namespace

ImprovedPlans prove_best(const ImproverInput& input) {
  ImprovedPlans made;
  const SearchSpace& space = input.space;
  if (!space.has_few_devices() || space.question.equal_samples) return made;
  Seconds known(kWider * rate_bound(space.sums, space.question.global_batch) * (1 - 1e-9));
  if (!input.plans.empty()) known = input.plans.front().price.step;
  for (const PricedStagePlan& each : input.plans) known = std::min(known, each.price.step);
  for (int round = 0; round < kProofRounds; ++round, known.value *= kWider) {
    ProofOutcome proof =
        prove_plans(space.free, space.evaluator, {space.question.global_batch, known});
    made.simulated += proof.simulated;
    made.lower_bound = std::max(made.lower_bound, proof.lower_bound);
    made.is_proved = proof.is_complete;
    const bool has_plan = proof.best || !input.plans.empty();
    if (proof.best) made.plans.push_back(*std::move(proof.best));
    if (has_plan || !proof.is_complete) break;
  }
  return made;
}

}  // namespace motley::search
