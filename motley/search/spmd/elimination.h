#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace motley::search {

/// Variables that take one of some values each (0 to domains[v] - 1), and tables that say what
/// combinations of a few of them cost.
struct TableLayout {
  std::vector<int> domains;
  std::vector<std::vector<int>> tables;  ///< by table: its variables; distinct, one or more
};

/// What the tables of a layout cost. Tables that cost the same may share their costs.
struct TableCosts {
  std::vector<int> of_table;  ///< by table: position in `costs`
  /// One entry for each combination, the table's last variable fastest. Infinite ones forbid.
  std::vector<std::vector<double>> costs;
};

struct TableSolution {
  std::vector<int> choice;   ///< by variable
  double cost = 0;           ///< of the choice
  double lower_bound = 0;    ///< no choice costs less; equal to `cost` when exact
  std::size_t solved = 0;    ///< eliminations computed
  std::size_t repeated = 0;  ///< eliminations whose result was known from equal ones before
  std::size_t relaxed = 0;   ///< eliminations that would have been too large
};

/// Chooses a value of every variable so that the sum of the tables is least, by bucket elimination
/// (Dechter, 1999): a variable is removed by minimising over it the sum of the tables that have it,
/// which gives a table over its neighbours; in the end all are gone, and the choices follow
/// backwards. The variable goes first whose removal joins the fewest (weighted min-fill).
///
/// The order, and how tables meet in each step, depend on the layout alone and are found once;
/// solving for other costs then only computes. A step that was done before with equal costs is
/// looked up: of a network of repeated layers one layer is solved.
///
/// A table of more than `most_entries` is not made: the tables of its variable are split into
/// groups that are minimised apart (mini-buckets), which bounds the cost from below; the choice is
/// then a good one, not surely the best. What a value of the variable costs at least is shared out
/// evenly among its groups, so that they agree better; the choice is the better one with and
/// without that. Afterwards each variable in turn takes its best value for those of the others
/// until nothing improves, where the choice was not exact.
///
/// Example: two variables of two values, tables {0, 3} on the first and {1, 0, 0, 1} on both:
/// choice {0, 1}, cost 0.
class Elimination {
 public:
  struct Steps;
  explicit Elimination(TableLayout layout, std::size_t most_entries = 1 << 16);
  ~Elimination();
  TableSolution solve(const TableCosts& costs) const;
  /// The bound is what matters: where tables are split, half the work.
  TableSolution bound(const TableCosts& costs) const;
  const TableLayout& layout() const { return layout_; }

 private:
  enum class Shifts { kOn, kOff };
  TableSolution solve(const TableCosts& costs, Shifts shifts) const;

  TableLayout layout_;
  std::unique_ptr<const Steps> steps_;  // in order
};

/// Sum of the tables at a choice.
double cost_of(const TableLayout& layout, const TableCosts& costs, const std::vector<int>& choice);

}  // namespace motley::search
