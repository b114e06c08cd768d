#include "motley/base/line_cursor.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/text.h"

namespace motley {
namespace {

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

}  // namespace

void LineCursor::skip_spaces() {
  while (at_ < line_.size() && line_[at_] == ' ') ++at_;
}

char LineCursor::peek() {
  skip_spaces();
  return at_ < line_.size() ? line_[at_] : '\0';
}

bool LineCursor::at_end() {
  skip_spaces();
  return at_ == line_.size();
}

bool LineCursor::take(char c) {
  if (at_end() || line_[at_] != c) return false;
  ++at_;
  return true;
}

bool LineCursor::take_word(std::string_view word) {
  skip_spaces();
  if (!line_.substr(at_).starts_with(word)) return false;
  const std::size_t end = at_ + word.size();
  if (end < line_.size() && is_word_character(line_[end])) return false;
  at_ = end;
  return true;
}

std::string_view LineCursor::take_identifier() {
  skip_spaces();
  const std::size_t begin = at_;
  while (at_ < line_.size() && is_word_character(line_[at_])) ++at_;
  return line_.substr(begin, at_ - begin);
}

/// Takes more characters than numbers have, so that a message shows all of "3x" and not its "x".
std::string_view LineCursor::take_number() {
  skip_spaces();
  const std::size_t begin = at_;
  const auto belongs = [](char c) {
    return is_word_character(c) || c == '.' || c == '+' || c == '-';
  };
  while (at_ < line_.size() && belongs(line_[at_])) ++at_;
  return line_.substr(begin, at_ - begin);
}

// Keeps only the first fault: later ones are its consequences.
bool LineCursor::expect(char c) {
  if (take(c)) return true;
  return has_failed() ? false : fail(fmt::format("'{}'", c));
}

bool LineCursor::expect_word(std::string_view word) {
  if (take_word(word)) return true;
  return has_failed() ? false : fail(fmt::format("'{}'", word));
}

bool LineCursor::expect_integer(std::int64_t& value) {
  skip_spaces();
  const std::size_t begin = at_;
  if (const auto integer = find_integer(take_number())) {
    value = *integer;
    return true;
  }
  at_ = begin;
  return fail("an integer");
}

bool LineCursor::expect_quoted(std::string& value) {
  if (peek() != '"') return fail("a text in quotes");
  const std::size_t begin = at_++;
  value.clear();
  while (at_ < line_.size() && line_[at_] != '"') {
    char c = line_[at_++];
    if (c == '\\') {
      c = at_ < line_.size() ? line_[at_++] : '\0';
      if (c == 'n') {
        c = '\n';
      } else if (c != '"' && c != '\\') {
        at_ = begin;
        return fail("a text in quotes with the escapes \\\" \\\\ \\n");
      }
    }
    value += c;
  }
  if (at_ < line_.size()) {
    ++at_;
    return true;
  }
  at_ = begin;
  return fail("a text that ends with a quote");
}

bool LineCursor::expect_end() { return at_end() || fail("the end of the line"); }

/// Shows what the cursor has not taken, cut so that a message stays on one line.
bool LineCursor::fail(std::string_view wanted) {
  if (has_failed()) return false;
  constexpr std::size_t kShown = 24;
  skip_spaces();
  const std::string_view rest = line_.substr(at_);
  if (rest.empty()) {
    message_ = fmt::format("found the end of the line, wanted {}", wanted);
  } else {
    message_ = fmt::format("found '{}{}', wanted {}", rest.substr(0, kShown),
                           rest.size() > kShown ? "..." : "", wanted);
  }
  return false;
}

Result<int> parse_lines(std::string_view text, const std::string& name, const TextForm& form,
                        const std::function<bool(LineCursor&, int)>& parse_line) {
  int number = 0;
  // An empty text also has a first line, which lacks the version.
  while (!text.empty() || number == 0) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (++number == 1) {
      if (content == form.version) continue;
      return usage_error(form.code, fmt::format("{}:1: found '{}', wanted '{}'", name,
                                                content.substr(0, 40), form.version));
    }
    LineCursor line(content);
    if (line.at_end() || line.peek() == '#' || parse_line(line, number)) continue;
    return usage_error(form.code, fmt::format("{}:{}: {}", name, number, line.message()));
  }
  return number;
}

}  // namespace motley
