#include "peers/import/csv.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "motley/base/check.h"
#include "motley/base/file.h"
#include "motley/base/text.h"

namespace motley::peers {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {
    if (text_.starts_with(kByteOrderMark)) at_ = kByteOrderMark.size();
  }

  /// Skips blank lines. Returns false at the end of the text.
  bool has_record() {
    while (!at_end() && is_line_end()) take_line_end();
    return !at_end();
  }

  /// Reads the next record's fields; `line` becomes its first line.
  Result<std::vector<std::string>> take_record(std::size_t& line) {
    line = line_;
    std::vector<std::string> fields;
    while (true) {
      MOTLEY_ASSIGN(fields.emplace_back(), take_field());
      if (at_end() || is_line_end()) break;
      ++at_;  // the comma
    }
    if (!at_end()) take_line_end();
    return fields;
  }

 private:
  bool at_end() const { return at_ == text_.size(); }
  bool is_line_end() const {
    return text_[at_] == '\n' || text_.substr(at_).starts_with("\r\n") || text_.substr(at_) == "\r";
  }
  void take_line_end() {
    if (text_[at_] == '\r') ++at_;
    if (!at_end()) ++at_;
    ++line_;
  }
  void skip_spaces() {
    while (!at_end() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  tl::unexpected<Error> failed(std::size_t line, std::string_view what) const {
    return usage_error("base.csv", fmt::format("{}:{}: {}", file_, line, what));
  }

  Result<std::string> take_field() {
    skip_spaces();
    if (!at_end() && text_[at_] == '"') return take_quoted();
    const std::size_t begin = at_;
    while (!at_end() && text_[at_] != ',' && !is_line_end()) ++at_;
    return std::string(trim(text_.substr(begin, at_ - begin)));
  }

  Result<std::string> take_quoted() {
    const std::size_t first_line = line_;
    std::string field;
    for (++at_; true; ++at_) {
      if (at_end()) return failed(first_line, "a field opens with a quote that nothing closes");
      if (text_[at_] == '"') {
        if (!text_.substr(at_).starts_with("\"\"")) break;
        ++at_;
      }
      if (text_[at_] == '\n') ++line_;
      field += text_[at_];
    }
    ++at_;
    skip_spaces();
    if (at_end() || text_[at_] == ',' || is_line_end()) return field;
    return failed(line_, fmt::format("found '{}' after a closing quote, wanted a comma or the "
                                     "end of the line",
                                     text_[at_]));
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0;
  std::size_t line_ = 1;
};

}  // namespace

Result<CsvTable> CsvTable::parse(std::string_view text, std::string file,
                                 const CsvOptions& options) {
  CsvTable table;
  table.file_ = std::move(file);
  Reader reader(text, table.file_);
  std::size_t line = 1;
  if (options.has_names) {
    if (!reader.has_record())
      return usage_error("base.csv",
                         fmt::format("{}:1: empty, wanted a line of names", table.file_));
    MOTLEY_ASSIGN(table.names_, reader.take_record(line));
    table.columns_ = table.names_.size();
  }
  while (reader.has_record()) {
    MOTLEY_ASSIGN(auto fields, reader.take_record(line));
    if (table.columns_ == 0) table.columns_ = fields.size();
    if (fields.size() != table.columns_)
      return usage_error("base.csv", fmt::format("{}:{}: found {} fields, wanted {}", table.file_,
                                                 line, fields.size(), table.columns_));
    for (std::string& field : fields) table.fields_.push_back(std::move(field));
    table.lines_.push_back(line);
  }
  return table;
}

Result<CsvTable> CsvTable::read(const std::string& path, const CsvOptions& options) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  return parse(text, path, options);
}

Result<std::size_t> CsvTable::column(std::string_view name, std::size_t occurrence) const {
  std::size_t seen = 0;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i] == name && seen++ == occurrence) return i;
  }
  const std::string which = occurrence == 0 ? "" : fmt::format(" number {}", occurrence + 1);
  return usage_error("base.csv", fmt::format("{}:1: no column{} '{}', found: {}", file_, which,
                                             name, join(names_, ", ")));
}

const std::string& CsvTable::text(std::size_t row, std::size_t column) const {
  MOTLEY_CHECK(row < rows() && column < columns_);
  return fields_[row * columns_ + column];
}

Result<double> CsvTable::number(std::size_t row, std::size_t column) const {
  const std::optional<double> value = find_float(text(row, column));
  if (!value || !std::isfinite(*value)) return fault(row, column, "a number");
  return *value;
}

Result<std::int64_t> CsvTable::integer(std::size_t row, std::size_t column) const {
  const std::optional<std::int64_t> value = find_integer(text(row, column));
  if (!value) return fault(row, column, "an integer");
  return *value;
}

Result<double> CsvTable::positive_number(std::size_t row, std::size_t column) const {
  MOTLEY_ASSIGN(const double value, number(row, column));
  if (!(value > 0)) return fault(row, column, "more than 0");
  return value;
}

Result<std::int64_t> CsvTable::positive_integer(std::size_t row, std::size_t column) const {
  MOTLEY_ASSIGN(const std::int64_t value, integer(row, column));
  if (value <= 0) return fault(row, column, "more than 0");
  return value;
}

std::size_t CsvTable::line(std::size_t row) const {
  MOTLEY_CHECK(row < rows());
  return lines_[row];
}

tl::unexpected<Error> CsvTable::fault(std::size_t row, std::size_t column,
                                      std::string_view wanted) const {
  const std::string name =
      column < names_.size() ? fmt::format("'{}'", names_[column]) : fmt::format("{}", column + 1);
  return usage_error("base.csv", fmt::format("{}:{}: column {}: found '{}', wanted {}", file_,
                                             line(row), name, text(row, column), wanted));
}

}  // namespace motley::peers
