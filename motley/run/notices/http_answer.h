#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/result.h"

namespace motley::run {

/// What a server answered.
struct HttpAnswer {
  int status = 0;  ///< 200: what was asked for; 404: there is no such thing
  std::string body;
  bool operator==(const HttpAnswer&) const = default;
};

/// Answers longer than this, head and body together, are refused: those of metadata servers have
/// less than a page.
inline constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 20;

/// Is what was received all that will come?
enum class Incoming { kMore, kOver };

/// An answer of HTTP/1.0 or 1.1 from the bytes received so far; empty: more has to come. Reads
/// bodies by their length, in chunks, and those that end with the connection; skips interim answers
/// (100 to 199); takes lines that end without a carriage return. Runtime error `run.http`: no HTTP,
/// too long, or over too early. Linear in the text, so reading piece by piece is quadratic: fine
/// for such sizes.
Result<std::optional<HttpAnswer>> parse_http_answer(std::string_view received, Incoming incoming);

}  // namespace motley::run
