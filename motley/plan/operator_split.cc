#include "motley/plan/operator_split.h"

#include <fmt/format.h>

#include "motley/base/line_cursor.h"

namespace motley::plan {
namespace {

constexpr std::int64_t kMost = 1 << 20;  // limit of factors or operands of an operator

bool read_number(LineCursor& line, int& number) {
  std::int64_t value = -1;
  if (!line.expect_integer(value) || value < 0 || value > kMost) return false;
  number = static_cast<int>(value);
  return true;
}

/// Reads "3*_*64".
bool read_inside(LineCursor& line, OperatorSplit& split) {
  return line.expect_integer(split.outer) && line.expect('*') && line.expect_word("_") &&
         line.expect('*') && line.expect_integer(split.inner) && split.outer > 0 && split.inner > 0;
}

}  // namespace

std::string print_split(const OperatorSplit& split) {
  if (split.factor >= 0) {
    if (split.outer == 1 && split.inner == 1) return fmt::format("factor {}", split.factor);
    return fmt::format("factor {}: {}*_*{}", split.factor, split.outer, split.inner);
  }
  if (split.partial.empty()) return "whole";
  std::string text = "terms";
  for (const int operand : split.partial) text += fmt::format(" {}", operand);
  return text;
}

std::optional<OperatorSplit> parse_split(std::string_view text) {
  LineCursor line(text);
  OperatorSplit split;
  if (line.take_word("factor")) {
    if (!read_number(line, split.factor)) return std::nullopt;
    if (line.take(':') && !read_inside(line, split)) return std::nullopt;
  } else if (line.take_word("terms")) {
    do {
      if (!read_number(line, split.partial.emplace_back())) return std::nullopt;
    } while (!line.at_end());
  } else if (!line.take_word("whole")) {
    return std::nullopt;
  }
  return line.at_end() ? std::optional<OperatorSplit>(std::move(split)) : std::nullopt;
}

}  // namespace motley::plan
