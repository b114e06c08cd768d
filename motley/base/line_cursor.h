#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/result.h"

namespace motley {

/// Reads one line of a text form from left to right. Each `take` skips spaces, consumes what it
/// names when that comes next, and otherwise leaves the line as it is. `expect` and `fail` record
/// the first thing that was wanted and missing, for one clear message a line. The line must outlive
/// the cursor.
///
///   LineCursor line("buffer %3: f32");
///   line.expect_word("buffer") && line.expect('%') && line.expect_integer(id)
class LineCursor {
 public:
  explicit LineCursor(std::string_view line) : line_(line) {}

  bool at_end();
  /// Next character after spaces; 0 at the end.
  char peek();

  bool take(char c);
  /// The word and no longer one ("f" does not take from "free").
  bool take_word(std::string_view word);
  /// Longest run of letters, digits and `_`; "" if there is none.
  std::string_view take_identifier();
  /// Longest run of letters, digits and `_ . + -`; "" if there is none.
  std::string_view take_number();

  bool expect(char c);
  bool expect_word(std::string_view word);
  /// Like a text form's "%12" without the sign: a whole number that fits 64 bits.
  bool expect_integer(std::int64_t& value);
  /// "text" with the escapes of quote().
  bool expect_quoted(std::string& value);
  bool expect_end();

  /// Records that `wanted` should have come next, unless a failure is recorded already. False.
  bool fail(std::string_view wanted);
  bool has_failed() const { return !message_.empty(); }
  /// "found 'x', wanted an integer"; "" when nothing failed.
  const std::string& message() const { return message_; }

 private:
  void skip_spaces();

  std::string_view line_;
  std::size_t at_ = 0;
  std::string message_;
};

/// A text form.
struct TextForm {
  const char* code;          ///< of its errors: "trace.parse"
  std::string_view version;  ///< the first line: "motley.trace/1"
};

/// Hands each line of a text after its first to `parse_line`, with its number; empty ones and those
/// that begin with '#' are passed over. Returns the number of the last line. Usage errors
/// ("NAME:LINE: ..."): a first line that is not the version; a line of which `parse_line` says no.
Result<int> parse_lines(std::string_view text, const std::string& name, const TextForm& form,
                        const std::function<bool(LineCursor&, int)>& parse_line);

}  // namespace motley
