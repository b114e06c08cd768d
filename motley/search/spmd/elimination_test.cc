#include "motley/search/spmd/elimination.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "motley/base/random.h"

namespace motley::search {
namespace {

struct TableProblem {
  TableLayout layout;
  TableCosts costs;

  void add(std::vector<int> variables, std::vector<double> cost) {
    layout.tables.push_back(std::move(variables));
    costs.of_table.push_back(static_cast<int>(costs.costs.size()));
    costs.costs.push_back(std::move(cost));
  }
};

double brute_force(const TableProblem& problem) {
  const std::vector<int>& domains = problem.layout.domains;
  std::vector<int> choice(domains.size(), 0);
  double best = std::numeric_limits<double>::infinity();
  while (true) {
    best = std::min(best, cost_of(problem.layout, problem.costs, choice));
    std::size_t v = 0;
    while (v < choice.size() && ++choice[v] == domains[v]) choice[v++] = 0;
    if (v == choice.size()) return best;
  }
}

/// Draws up to eight variables of up to three values, with tables over up to three of them.
TableProblem random_problem(std::uint64_t seed) {
  SplitMix64 random(seed);
  TableProblem problem;
  const std::size_t variables = 1 + random.below(8);
  for (std::size_t v = 0; v < variables; ++v)
    problem.layout.domains.push_back(1 + static_cast<int>(random.below(3)));
  for (std::size_t t = 0; t < 2 * variables; ++t) {
    std::vector<int> own;
    std::size_t entries = 1;
    for (std::uint64_t i = 0; i <= random.below(3); ++i) {
      const int v = static_cast<int>(random.below(variables));
      if (std::find(own.begin(), own.end(), v) != own.end()) continue;
      own.push_back(v);
      entries *= static_cast<std::size_t>(problem.layout.domains[static_cast<std::size_t>(v)]);
    }
    std::vector<double> cost;
    for (std::size_t e = 0; e < entries; ++e) cost.push_back(static_cast<double>(random.below(10)));
    problem.add(std::move(own), std::move(cost));
  }
  return problem;
}

TEST(Elimination, SolvesTheExample) {
  const Elimination elimination({{2, 2}, {{0}, {0, 1}}});
  const TableSolution solution = elimination.solve({{0, 1}, {{0, 3}, {1, 0, 0, 1}}});
  EXPECT_EQ(solution.choice, (std::vector<int>{0, 1}));
  EXPECT_EQ(solution.cost, 0);
  EXPECT_EQ(solution.lower_bound, 0);
}

RC_GTEST_PROP(Elimination, EqualsBruteForce, (std::uint64_t seed)) {
  const TableProblem problem = random_problem(seed);
  const TableSolution solution = Elimination(problem.layout).solve(problem.costs);
  RC_ASSERT(solution.relaxed == 0u);
  RC_ASSERT(solution.cost == brute_force(problem));
  RC_ASSERT(solution.lower_bound == solution.cost);
}

RC_GTEST_PROP(Elimination, SmallTablesBoundFromBothSides, (std::uint64_t seed)) {
  const TableProblem problem = random_problem(seed);
  const TableSolution solution = Elimination(problem.layout, 8).solve(problem.costs);
  const double best = brute_force(problem);
  RC_ASSERT(solution.lower_bound <= best);
  RC_ASSERT(solution.cost >= best);
}

TEST(Elimination, SolvesRepeatedLayersOnce) {
  TableLayout layout{std::vector<int>(200, 4), {}};
  for (int v = 0; v + 1 < 200; ++v) layout.tables.push_back({v, v + 1});
  TableCosts costs{std::vector<int>(199, 0), {{}}};
  SplitMix64 random(1);
  for (int e = 0; e < 16; ++e) costs.costs[0].push_back(static_cast<double>(random.below(100)));
  const TableSolution solution = Elimination(layout).solve(costs);
  EXPECT_EQ(solution.solved + solution.repeated, 200u);
  EXPECT_LT(solution.solved, 200u);
}

/// Forbids some combinations, and makes tables share costs.
TableProblem with_forbidden(TableProblem problem, SplitMix64& random) {
  for (std::vector<double>& costs : problem.costs.costs)
    for (double& cost : costs)
      if (random.below(4) == 0) cost = std::numeric_limits<double>::infinity();
  return problem;
}

RC_GTEST_PROP(Elimination, ForbiddenCombinationsAreNotChosen, (std::uint64_t seed)) {
  SplitMix64 random(seed);
  const TableProblem problem = with_forbidden(random_problem(seed), random);
  const TableSolution solution = Elimination(problem.layout).solve(problem.costs);
  RC_ASSERT(solution.cost == brute_force(problem));
  RC_ASSERT(solution.cost == cost_of(problem.layout, problem.costs, solution.choice));
}

RC_GTEST_PROP(Elimination, NoVariableAloneIsBetterChosenOtherwise, (std::uint64_t seed)) {
  const TableProblem problem = random_problem(seed);
  const TableSolution solution = Elimination(problem.layout, 8).solve(problem.costs);
  RC_ASSERT(solution.cost == cost_of(problem.layout, problem.costs, solution.choice));
  for (std::size_t v = 0; v < solution.choice.size(); ++v)
    for (int value = 0; value < problem.layout.domains[v]; ++value) {
      std::vector<int> other = solution.choice;
      other[v] = value;
      RC_ASSERT(cost_of(problem.layout, problem.costs, other) >= solution.cost);
    }
}

TEST(Elimination, SolvesALayoutAgainForOtherCosts) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    TableProblem problem = random_problem(seed);
    const Elimination elimination(problem.layout);
    SplitMix64 random(seed);
    for (int again = 0; again < 3; ++again) {
      EXPECT_EQ(elimination.solve(problem.costs).cost, brute_force(problem)) << seed;
      for (std::vector<double>& costs : problem.costs.costs)
        for (double& cost : costs) cost = static_cast<double>(random.below(10));
    }
  }
}

// Three variables that all meet need a table of 27 entries. With at most 9 the bound is the sum of
// the pairs' least costs, each 0, but no choice costs less than 1: the values are 0 to 2, two pairs
// must be equal and one different.
TEST(Elimination, SaysWhereItIsNotExact) {
  const TableLayout layout{{3, 3, 3}, {{0, 1}, {1, 2}, {0, 2}}};
  // Equal values are free in the first two tables, unequal ones in the last: not all at once.
  TableCosts costs{{0, 0, 1}, {{}, {}}};
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b) {
      costs.costs[0].push_back(a == b ? 0 : 1);
      costs.costs[1].push_back(a == b ? 1 : 0);
    }
  const TableSolution exact = Elimination(layout).solve(costs);
  EXPECT_EQ(exact.relaxed, 0u);
  EXPECT_EQ(exact.cost, 1);
  EXPECT_EQ(exact.lower_bound, 1);
  const TableSolution rough = Elimination(layout, 9).solve(costs);
  EXPECT_GT(rough.relaxed, 0u);
  EXPECT_EQ(rough.lower_bound, 0);
  EXPECT_EQ(rough.cost, 1);
}

}  // namespace
}  // namespace motley::search
