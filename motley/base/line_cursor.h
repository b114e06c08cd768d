#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/result.h"

namespace motley {

/// Reads one line of a text form from left to right. Each `take` skips spaces, and consumes what it
/// names or leaves the line unchanged. `expect` and `fail` record the first thing that was missing,
/// for one clear message per line. The line must outlive the cursor.
///
///   LineCursor line("buffer %3: f32");
///   line.expect_word("buffer") && line.expect('%') && line.expect_integer(id)
class LineCursor {
 public:
  explicit LineCursor(std::string_view line) : line_(line) {}

  bool at_end();
  /// Returns the next character after spaces; 0 at the end.
  char peek();

  bool take(char c);
  /// Takes a whole word only ("f" is not taken from "free").
  bool take_word(std::string_view word);
  /// Takes the longest run of letters, digits and `_`; "" if there is none.
  std::string_view take_identifier();
  /// Takes the longest run of letters, digits and `_ . + -`; "" if there is none.
  std::string_view take_number();

  bool expect(char c);
  bool expect_word(std::string_view word);
  /// Takes a whole number that fits 64 bits, such as the 12 of "%12".
  bool expect_integer(std::int64_t& value);
  /// Takes "text" with the escapes of quote().
  bool expect_quoted(std::string& value);
  bool expect_end();

  /// Records that `wanted` should come next, unless a failure is recorded already. Returns false.
  bool fail(std::string_view wanted);
  bool has_failed() const { return !message_.empty(); }
  /// Returns "found 'x', wanted an integer"; "" when nothing failed.
  const std::string& message() const { return message_; }

 private:
  void skip_spaces();

  std::string_view line_;
  std::size_t at_ = 0;
  std::string message_;
};

/// The error code and first line of a text form.
struct TextForm {
  const char* code;          ///< of its errors: "trace.parse"
  std::string_view version;  ///< the first line: "motley.trace/1"
};

/// Passes each line after the first to `parse_line` with its number, except empty ones and those
/// that begin with '#'. Returns the last line's number. Usage errors ("NAME:LINE: ..."): the first
/// line is not the version; `parse_line` returns false.
Result<int> parse_lines(std::string_view text, const std::string& name, const TextForm& form,
                        const std::function<bool(LineCursor&, int)>& parse_line);

}  // namespace motley
