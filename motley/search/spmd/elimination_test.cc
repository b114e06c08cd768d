#include "motley/search/spmd/elimination.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

#include "motley/base/random.h"

namespace motley::search {
namespace {

double brute_force(const TableProblem& problem) {
  std::vector<int> choice(problem.domains.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    best = std::min(best, cost_of(problem, choice));
    std::size_t v = 0;
    while (v < choice.size() && ++choice[v] == problem.domains[v]) choice[v++] = 0;
    if (v == choice.size()) return best;
  }
}

/// Up to eight variables of up to three values, tables over up to three of them.
TableProblem random_problem(std::uint64_t seed) {
  SplitMix64 random(seed);
  TableProblem problem;
  const std::size_t variables = 1 + random.below(8);
  for (std::size_t v = 0; v < variables; ++v)
    problem.domains.push_back(1 + static_cast<int>(random.below(3)));
  for (std::size_t t = 0; t < 2 * variables; ++t) {
    CostTable table;
    std::size_t entries = 1;
    for (std::uint64_t i = 0; i <= random.below(3); ++i) {
      const int v = static_cast<int>(random.below(variables));
      if (std::find(table.variables.begin(), table.variables.end(), v) != table.variables.end())
        continue;
      table.variables.push_back(v);
      entries *= static_cast<std::size_t>(problem.domains[static_cast<std::size_t>(v)]);
    }
    for (std::size_t e = 0; e < entries; ++e)
      table.cost.push_back(static_cast<double>(random.below(10)));
    problem.tables.push_back(std::move(table));
  }
  return problem;
}

TEST(Elimination, SolvesTheExample) {
  const TableProblem problem{{2, 2}, {{{0}, {0, 3}}, {{0, 1}, {1, 0, 0, 1}}}};
  const TableSolution solution = solve_tables(problem);
  EXPECT_EQ(solution.choice, (std::vector<int>{0, 1}));
  EXPECT_EQ(solution.cost, 0);
  EXPECT_EQ(solution.lower_bound, 0);
}

RC_GTEST_PROP(Elimination, EqualsBruteForce, (std::uint64_t seed)) {
  const TableProblem problem = random_problem(seed);
  const TableSolution solution = solve_tables(problem);
  RC_ASSERT(solution.relaxed == 0u);
  RC_ASSERT(solution.cost == brute_force(problem));
  RC_ASSERT(solution.lower_bound == solution.cost);
}

RC_GTEST_PROP(Elimination, SmallTablesBoundFromBothSides, (std::uint64_t seed)) {
  const TableProblem problem = random_problem(seed);
  const TableSolution solution = solve_tables(problem, 8);
  const double best = brute_force(problem);
  RC_ASSERT(solution.lower_bound <= best);
  RC_ASSERT(solution.cost >= best);
}

TEST(Elimination, SolvesRepeatedLayersOnce) {
  // A chain of 200 equal links.
  TableProblem problem;
  problem.domains.assign(200, 4);
  CostTable link{{0, 1}, {}};
  SplitMix64 random(1);
  for (int e = 0; e < 16; ++e) link.cost.push_back(static_cast<double>(random.below(100)));
  for (int v = 0; v + 1 < 200; ++v) {
    link.variables = {v, v + 1};
    problem.tables.push_back(link);
  }
  const TableSolution solution = solve_tables(problem);
  EXPECT_EQ(solution.solved + solution.repeated, 200u);
  EXPECT_LT(solution.solved, 200u);
}

}  // namespace
}  // namespace motley::search
