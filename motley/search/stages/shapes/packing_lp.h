#pragma once

#include <cstddef>
#include <vector>

namespace motley::search {

/// Solves max value.x subject to columns x <= limits, x >= 0, with all limits > 0 and columns added
/// as found: the master problem of column generation (Dantzig and Wolfe, 1960). Primal simplex from
/// the slack basis or from the last solution, with an explicit inverse. The pivot has the largest
/// reduced value; after many steps without gain Bland's rule ensures termination. A step costs rows
/// (rows + columns).
class PackingLp {
 public:
  explicit PackingLp(std::vector<double> limits);

  /// Adds a column; entries >= 0, one per limit.
  std::size_t add(double value, std::vector<double> entries);
  /// Returns the optimum over the columns so far.
  double solve();

  /// After solve(): the value of one more unit of each limit, >= 0; the amount of each column.
  const std::vector<double>& prices() const { return prices_; }
  std::vector<double> amounts() const;

 private:
  double reduced(std::size_t column) const;
  bool step(bool bland);

  struct Column {
    double value;
    std::vector<double> entries;
  };
  std::size_t rows_;
  std::vector<Column> columns_;  // the first rows_ are slacks
  std::vector<std::size_t> basis_;
  std::vector<bool> is_basic_;
  std::vector<double> inverse_;  // [row][row]
  std::vector<double> levels_;   // of basic columns
  std::vector<double> prices_;
};

}  // namespace motley::search
