#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley {

/// Prints the shortest text that reads back equal; always with '.', 'e', "inf" or "nan" ("2.0").
std::string print_float(double value);
/// Parse a whole text; empty for any other text.
std::optional<std::int64_t> find_integer(std::string_view text);
std::optional<double> find_float(std::string_view text);

/// Returns "text" with \" \\ \n escaped.
std::string quote(std::string_view text);

std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
std::string join(std::span<const std::string> parts, std::string_view separator);

/// Returns whether the text is well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view text);

/// Returns the nearest candidate by edit distance, if it is near enough for a likely typing error.
std::optional<std::string> find_suggestion(std::string_view word,
                                           std::span<const std::string> candidates);
/// Returns ", did you mean 'x'?" or "".
std::string suggestion_clause(std::string_view word, std::span<const std::string> candidates);

/// Print for people: "17.9 GiB", "512 MiB", "3.51 s", "12.4 ms", "180 us", "9.4 Gbps".
std::string format_bytes(Bytes bytes);
std::string format_seconds(Seconds seconds);
std::string format_rate(BytesPerSecond rate);

/// Parse quantities with units as in hand-written files: "512MiB" "24GiB" "1.2GB" "64kB" "100B";
/// "120s" "100us" "3ms"; "10Gbps" "1Gbps" "40GB/s"; without unit bytes, seconds, bytes per second.
Result<Bytes> parse_bytes(std::string_view text);
Result<Seconds> parse_seconds(std::string_view text);
Result<BytesPerSecond> parse_rate(std::string_view text);

/// Prints rows of a table: a name (10 columns or more), then its cells, maybe on several lines.
/// Four or more rows with consecutive numbers and equal cells share one row: "b:0 to b:6".
std::string print_rows(const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace motley
