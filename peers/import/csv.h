#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"

namespace motley::peers {

struct CsvOptions {
  bool has_names = true;  ///< the first line names the columns; else `column` finds none
};

/// A table of text fields from comma-separated values (RFC 4180): quoted fields may contain commas,
/// line ends and doubled quotes. Also accepts a leading UTF-8 byte-order mark, CR LF or LF as line
/// end, no line end after the last line, and blank lines, which are skipped. Unquoted fields and
/// names are trimmed.
///
/// All rows have the same number of columns. Errors are usage errors (base.csv) that begin with
/// "FILE:LINE: ". Rows and columns count from 0, lines from 1.
///
///   MOTLEY_ASSIGN(const CsvTable table, CsvTable::parse("n,ms\n2,17.5\n", "times.csv"));
///   MOTLEY_ASSIGN(const std::size_t ms, table.column("ms"));
///   MOTLEY_ASSIGN(const double time, table.number(0, ms));  // 17.5
class CsvTable {
 public:
  static Result<CsvTable> parse(std::string_view text, std::string file,
                                const CsvOptions& options = {});
  static Result<CsvTable> read(const std::string& path, const CsvOptions& options = {});

  std::size_t rows() const { return lines_.size(); }
  std::size_t columns() const { return columns_; }
  /// Empty without names.
  const std::vector<std::string>& names() const { return names_; }
  /// Finds a column by name and earlier occurrences. Otherwise an error that lists the names.
  Result<std::size_t> column(std::string_view name, std::size_t occurrence = 0) const;

  const std::string& text(std::size_t row, std::size_t column) const;
  /// Return a finite number; an integer that fits 64 bits.
  Result<double> number(std::size_t row, std::size_t column) const;
  Result<std::int64_t> integer(std::size_t row, std::size_t column) const;
  /// Return numbers > 0, such as times and sizes.
  Result<double> positive_number(std::size_t row, std::size_t column) const;
  Result<std::int64_t> positive_integer(std::size_t row, std::size_t column) const;

  /// Returns the line of the file where a row begins.
  std::size_t line(std::size_t row) const;
  /// Returns "FILE:LINE: column 'ms': found 'x', wanted WANTED", for the caller's own checks.
  tl::unexpected<Error> fault(std::size_t row, std::size_t column, std::string_view wanted) const;

 private:
  std::string file_;
  std::vector<std::string> names_;
  std::size_t columns_ = 0;
  std::vector<std::string> fields_;  // row by row
  std::vector<std::size_t> lines_;   // of each row
};

}  // namespace motley::peers
