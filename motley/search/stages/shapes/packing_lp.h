#pragma once

#include <cstddef>
#include <vector>

namespace motley::search {

/// max value.x subject to columns x <= limits, x >= 0, all limits > 0 and columns added as they are
/// found: the master problem of column generation (Dantzig and Wolfe, 1960). Primal simplex from
/// the slack basis or from where the last solve ended, with an explicit inverse; the pivot is the
/// largest reduced value, Bland's rule after many steps without gain, so it ends. A step costs
/// rows (rows + columns).
class PackingLp {
 public:
  explicit PackingLp(std::vector<double> limits);

  /// Entries >= 0, one for each limit.
  std::size_t add(double value, std::vector<double> entries);
  /// The optimum over the columns there are.
  double solve();

  /// After solve(): what one more unit of each limit is worth, >= 0; amounts of each column.
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
  std::vector<Column> columns_;  // the first rows_: slacks
  std::vector<std::size_t> basis_;
  std::vector<bool> is_basic_;
  std::vector<double> inverse_;  // [row][row]
  std::vector<double> levels_;   // of basic columns
  std::vector<double> prices_;
};

}  // namespace motley::search
