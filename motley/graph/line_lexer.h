#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/graph/size_expr.h"

namespace motley::graph {

/// Reads the lines of a graph's text from left to right. What is wanted and not found is a usage
/// error `graph.parse`: "NAME:LINE: found X, wanted Y".
class LineLexer {
 public:
  LineLexer(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  /// Goes to the next line that is neither empty nor a comment. False: to the end of the text.
  bool next_line();

  /// Reports what comes next, or `found`, in place of what is wanted.
  tl::unexpected<Error> fail(std::string_view wanted) const { return fail(found(), wanted); }
  tl::unexpected<Error> fail(std::string_view found, std::string_view wanted) const {
    return usage_error("graph.parse",
                       fmt::format("{}:{}: found {}, wanted {}", name_, line_, found, wanted));
  }
  /// Does the same where rest() was as given, after blanks.
  tl::unexpected<Error> fail_at(std::string_view rest, std::string_view wanted) {
    rest_ = rest;
    skip_blanks();
    return fail(wanted);
  }

  // Of the rest of the line, without skipping blanks:
  std::string_view rest() const { return rest_; }
  std::string_view run_of(std::string_view characters) const {
    return rest_.substr(0, rest_.find_first_not_of(characters));
  }
  std::string_view up_to(std::string_view characters) const {
    return rest_.substr(0, rest_.find_first_of(characters));
  }
  void skip(std::string_view next) { rest_.remove_prefix(next.size()); }
  bool eat_here(std::string_view next) {
    if (!rest_.starts_with(next)) return false;
    skip(next);
    return true;
  }

  // After blanks; what differs from the wanted is left:
  char peek() {
    skip_blanks();
    return rest_.empty() ? '\0' : rest_[0];
  }
  bool eat(char c) {
    if (peek() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string_view word();
  bool eat_word(std::string_view wanted);
  Result<void> want(char c) {
    if (eat(c)) return {};
    return fail(fmt::format("'{}'", c));
  }
  Result<void> want_end() {
    skip_blanks();
    if (rest_.empty()) return {};
    return fail("the end of the line");
  }

  Result<std::string> quoted(std::string_view wanted);
  Result<std::int64_t> integer(std::string_view wanted);
  /// Parses an expression up to the ',', ']' or ')' that ends it.
  Result<SizeExpr> expression();

 private:
  /// Returns the next word or character for messages.
  std::string found() const;
  void skip_blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }

  std::string_view text_;  // the lines after this one
  const std::string& name_;
  std::string_view rest_;
  int line_ = 0;
};

}  // namespace motley::graph
