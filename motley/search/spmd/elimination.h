#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace motley::search {

/// Cost of a choice of some variables: `cost` has one entry for each combination, the last variable
/// fastest. Variables are distinct, one or more.
struct CostTable {
  std::vector<int> variables;
  std::vector<double> cost;
  int like = -1;  ///< position of an earlier table that has the cost of this one; none: it has it
};

/// Choose a value of every variable (0 to domains[v] - 1) so that the sum of the tables is least.
/// Infinite costs forbid.
struct TableProblem {
  std::vector<int> domains;
  std::vector<CostTable> tables;
  const std::vector<double>& cost(const CostTable& table) const {
    return table.like < 0 ? table.cost : tables[static_cast<std::size_t>(table.like)].cost;
  }
};

struct TableSolution {
  std::vector<int> choice;   ///< by variable
  double cost = 0;           ///< of the choice
  double lower_bound = 0;    ///< no choice costs less; equal to `cost` when exact
  std::size_t solved = 0;    ///< eliminations computed
  std::size_t repeated = 0;  ///< eliminations whose result was known from equal ones before
  std::size_t relaxed = 0;   ///< eliminations that would have been too large
};

/// Bucket elimination (Dechter, 1999): a variable is removed by minimising over it the sum of the
/// tables that have it, which gives a table over its neighbours; in the end all are gone, and the
/// choices follow backwards. The variable whose table is smallest goes first, of equals the first.
///
/// Tables are compared by content, so that a step that was done before with equal tables is looked
/// up: of a network of repeated layers one layer is solved.
///
/// A table of more than `most_entries` is not made: the tables of its variable are split into
/// groups that are minimised apart (mini-buckets), which bounds the cost from below; the choice is
/// then a good one, not surely the best. Afterwards each variable in turn takes its best value for
/// those of the others until nothing improves, where the choice was not exact.
///
/// Example: two variables of two values, tables {0, 3} on the first and {1, 0, 0, 1} on both:
/// choice {0, 1}, cost 0.
TableSolution solve_tables(const TableProblem& problem, std::size_t most_entries = 1 << 18);

/// Sum of the tables at a choice.
double cost_of(const TableProblem& problem, const std::vector<int>& choice);

}  // namespace motley::search
