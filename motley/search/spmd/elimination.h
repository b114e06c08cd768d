#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace motley::search {

/// Variables with values 0 to domains[v] - 1, and tables of costs over a few of them.
struct TableLayout {
  std::vector<int> domains;
  std::vector<std::vector<int>> tables;  ///< by table: its distinct variables, at least one
};

/// Costs of a layout's tables; equal ones may be shared.
struct TableCosts {
  std::vector<int> of_table;  ///< by table: index in `costs`
  /// One entry per combination, the table's last variable fastest. Infinity forbids.
  std::vector<std::vector<double>> costs;
};

struct TableSolution {
  std::vector<int> choice;   ///< by variable
  double cost = 0;           ///< of the choice
  double lower_bound = 0;    ///< no choice costs less; equals `cost` if exact
  std::size_t solved = 0;    ///< eliminations computed
  std::size_t repeated = 0;  ///< eliminations reused from equal ones
  std::size_t relaxed = 0;   ///< eliminations that were too large
};

/// Finds values of all variables that minimise the sum of the tables, by bucket elimination
/// (Dechter, 1999). Removing a variable minimises the sum of its tables over it, which gives a
/// table over its neighbours. When all are gone, the values are found backwards. Next is the
/// variable whose removal joins the fewest (weighted min-fill).
///
/// The order and the steps' table combinations depend only on the layout and are found once. A step
/// with costs seen before is looked up, so of a network of repeated layers one layer is solved.
///
/// Tables of more than `most_entries` are not made. Instead the tables of the variable are split
/// into groups that are minimised separately (mini-buckets), which gives a lower bound and a good
/// but not certainly optimal choice. The least cost of each value is shared evenly among the groups
/// so that they agree better; the better choice with and without this is kept. Afterwards, if the
/// choice is not exact, each variable in turn takes its best value until nothing improves.
///
/// Example: two variables of two values, tables {0, 3} on the first and {1, 0, 0, 1} on both:
/// choice {0, 1}, cost 0.
class Elimination {
 public:
  struct Steps;
  explicit Elimination(TableLayout layout, std::size_t most_entries = 1 << 16);
  ~Elimination();
  TableSolution solve(const TableCosts& costs) const;
  /// Solves for the bound alone: half the work if tables are split.
  TableSolution bound(const TableCosts& costs) const;
  const TableLayout& layout() const { return layout_; }

 private:
  enum class Shifts { kOn, kOff };
  TableSolution solve(const TableCosts& costs, Shifts shifts) const;

  TableLayout layout_;
  std::unique_ptr<const Steps> steps_;
};

double cost_of(const TableLayout& layout, const TableCosts& costs, const std::vector<int>& choice);

}  // namespace motley::search
