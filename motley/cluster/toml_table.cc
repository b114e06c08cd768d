#include "motley/cluster/toml_table.h"

#include <algorithm>
#include <limits>

#include "motley/base/text.h"

namespace motley::cluster {
namespace {

// Dotted keys nest a table per dot; bounded lines bound the depth.
constexpr std::size_t kMaxLine = 4096;
constexpr std::size_t kMaxFile = std::size_t{4} << 20;

// Returns where the line's comment starts, or its end. No key accepts strings over several lines.
std::size_t find_comment(std::string_view line) {
  char mark = '\0';  // of the open string
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (mark == '\0' && c == '#') return i;
    if (mark == '\0' && (c == '"' || c == '\'')) {
      mark = c;
    } else if (mark == '"' && c == '\\') {
      ++i;
    } else if (c == mark) {
      mark = '\0';
    }
  }
  return line.size();
}

bool is_beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

// Returns the text in ASCII: the parser's classification of most other characters is undefined.
// Replaces any in comments; no key accepts one elsewhere. Drops a byte order mark.
Result<std::string> ascii_text(std::string_view text, const TableReader::Source& source) {
  const std::string& name = source.file;
  if (text.size() > kMaxFile) {
    return usage_error(source.code + ".parse",
                       fmt::format("{}: {} bytes, wanted at most {}", name, text.size(), kMaxFile));
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::string result(text);
  std::size_t start = 0;
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (line.size() > kMaxLine) {
      return usage_error(
          source.code + ".parse",
          fmt::format("{}:{}: a line of {} bytes, wanted at most {}; break the array "
                      "into lines",
                      name, number, line.size(), kMaxLine));
    }
    const std::size_t comment = find_comment(line);
    if (std::any_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(comment),
                    is_beyond_ascii)) {
      return usage_error(source.code + ".parse",
                         fmt::format("{}:{}: a character that is not ASCII, wanted ASCII outside "
                                     "comments",
                                     name, number));
    }
    const auto from = result.begin() + static_cast<std::ptrdiff_t>(start);
    std::replace_if(from, from + static_cast<std::ptrdiff_t>(line.size()), is_beyond_ascii, '?');
    start += line.size() + 1;
  }
  return result;
}

}  // namespace

std::string_view toml_type(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

Result<void> TableReader::refuse_unknown(std::span<const std::string> known) const {
  const toml::key* first = nullptr;
  for (const auto& [key, node] : *table_) {
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    if (first == nullptr || key.source().begin < first->source().begin) first = &key;
  }
  if (first == nullptr) return {};
  return fault(static_cast<int>(first->source().begin.line), "unknown-key",
               fmt::format("unknown key '{}' in {}{}; known keys: {}", first->str(), what_,
                           suggestion_clause(first->str(), known), join(known, ", ")));
}

Result<int> TableReader::small(std::string_view key, int fallback) const {
  MOTLEY_ASSIGN(const auto value, integer(key));
  if (!value) return fallback;
  if (*value < std::numeric_limits<int>::min() || *value > std::numeric_limits<int>::max()) {
    return fault_at(key, fmt::format("{} is too large", *value));
  }
  return static_cast<int>(*value);
}

Result<std::vector<TableReader>> TableReader::tables(std::string_view key,
                                                     const std::string& what) const {
  std::vector<TableReader> result;
  const toml::node* node = find(key);
  if (node == nullptr) return result;
  const toml::array* array = node->as_array();
  if (array == nullptr) return wrong_type(key, fmt::format("tables, each headed {}", what));
  for (const toml::node& element : *array) {
    const toml::table* table = element.as_table();
    if (table == nullptr) return wrong_type(key, fmt::format("tables, each headed {}", what));
    result.emplace_back(*table, source_, what);
  }
  return result;
}

Result<toml::table> parse_toml(std::string_view text, const TableReader::Source& source) {
  MOTLEY_ASSIGN(const std::string ascii, ascii_text(text, source));
  toml::parse_result document = toml::parse(std::string_view(ascii), std::string_view(source.file));
  if (!document) {
    const toml::parse_error& error = document.error();
    return usage_error(source.code + ".parse",
                       fmt::format("{}:{}: not valid TOML: {}", source.file,
                                   error.source().begin.line, error.description()));
  }
  return std::move(document).table();
}

}  // namespace motley::cluster
