#include "motley/search/spmd/ways_taken.h"

#include <gtest/gtest.h>

#include "motley/search/spmd/study.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

using WaysTakenTest = WideMlpTest;

// Ways chosen by a bound's tables, for each bound alone and for all: their times match the tables,
// less launches longer than one operator's work but not than that of all equally split.
TEST_F(WaysTakenTest, IsAboutWhatTheTablesSay) {
  set_up(1024, "", 512);
  const SpmdQuestion question{&model_.graph, &cluster_, &costs_, {}, 512, problem_.devices, {}};
  auto study = SpmdStudy::make(question);
  ASSERT_TRUE(study) << study.error().message;
  const std::vector<double> even = {1, 1};
  const SpmdSpace& space = study->choices(even).space;
  const BoundTerms terms =
      find_bound_terms(model_.graph, space, study->whole_step(0, Estimate::kLeast).seconds);
  const ChoiceProblem problem(model_.graph, space, terms);
  SpmdPrices prices = study->prices(space, problem_.devices, even, Estimate::kLeast);
  for (std::size_t only = 0; only <= kBounds; ++only) {
    SpmdObjective objective;
    objective.bounds.assign(kBounds, only < kBounds ? 0 : 1.0 / kBounds);
    if (only < kBounds) objective.bounds[only] = 1;
    objective.kinds.assign(2, {1, 0.5, {0.5, 0.5, 256, 256}});
    const TableSolution solution = problem.solve(problem.costs(prices, objective));
    synth::Sharding sharding;
    problem.apply(solution.choice, sharding);
    const WaysTaken taken(model_.graph, space, terms, prices, sharding, {});
    const std::vector<double> by_bound = taken.by_bound(objective.kinds);
    double mean = 0;
    for (std::size_t b = 0; b < kBounds; ++b) mean += objective.bounds[b] * by_bound[b];
    EXPECT_LE(mean, solution.cost * (1 + 1e-6)) << only;
    EXPECT_GE(mean, solution.cost * 0.85) << only;
  }
}

}  // namespace
}  // namespace motley::search
