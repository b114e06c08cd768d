#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/result.h"

namespace motley::run {

struct HttpAnswer {
  int status = 0;  ///< 200: success; 404: no such thing
  std::string body;
  bool operator==(const HttpAnswer&) const = default;
};

/// Limit of an answer, head and body together. Answers of metadata servers are shorter than a page.
inline constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 20;

/// Whether more input may follow.
enum class Incoming { kMore, kOver };

/// Parses an answer of HTTP/1.0 or 1.1 from the bytes so far; empty: more must come. Reads bodies
/// by length, in chunks, or up to the connection's end. Skips interim answers (100 to 199). Accepts
/// lines without a carriage return. Runtime error `run.http`: not HTTP, too long, or ended too
/// early. Linear in the text, so parsing after each piece is quadratic: acceptable for such sizes.
Result<std::optional<HttpAnswer>> parse_http_answer(std::string_view received, Incoming incoming);

}  // namespace motley::run
