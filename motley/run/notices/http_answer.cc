#include "motley/run/notices/http_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <utility>

#include "motley/base/text.h"

namespace motley::run {
namespace {

struct Received {
  std::string_view rest;
  Incoming incoming;

  /// Returns a line without its end; empty: it is incomplete.
  std::optional<std::string_view> take_line() {
    const std::size_t end = rest.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }
};

struct HttpHead {
  int status = 0;
  std::optional<std::size_t> length;
  bool is_chunked = false;
};

tl::unexpected<Error> no_http(std::string why) {
  return runtime_error("run.http", "an answer that is no HTTP: " + std::move(why));
}

template <typename T>
Result<std::optional<T>> wait_for_more(const Received& received) {
  if (received.incoming == Incoming::kMore) return std::optional<T>();
  return runtime_error("run.http", "the answer ended too early");
}

std::string lower(std::string_view text) {
  std::string copy(text);
  for (char& c : copy) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return copy;
}

Result<std::size_t> read_size(std::string_view text, int base) {
  std::size_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size, base);
  if (error == std::errc() && end == text.data() + text.size() && size <= kMostAnswerBytes)
    return size;
  return no_http(fmt::format("a size of at most {} bytes was wanted", kMostAnswerBytes));
}

Result<int> read_status(std::string_view line) {
  // "HTTP/1.1 404 Not Found"
  const std::size_t blank = line.find(' ');
  const std::string_view number =
      blank == std::string_view::npos ? line.substr(0, 0) : line.substr(blank + 1, 3);
  const auto status = find_integer(number);
  if (!line.starts_with("HTTP/1.") || !status || *status < 100 || *status > 599)
    return no_http("it begins without a status");
  return static_cast<int>(*status);
}

Result<void> read_field(std::string_view line, HttpHead& head) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return no_http("a header without a colon");
  const std::string name = lower(line.substr(0, colon));
  const std::string_view value = trim(line.substr(colon + 1));
  if (name == "transfer-encoding") head.is_chunked |= lower(value).ends_with("chunked");
  if (name != "content-length") return {};
  MOTLEY_ASSIGN(const std::size_t length, read_size(value, 10));
  if (head.length && *head.length != length) return no_http("two lengths");
  head.length = length;
  return {};
}

Result<std::optional<HttpHead>> take_head(Received& received) {
  const auto first = received.take_line();
  if (!first) return wait_for_more<HttpHead>(received);
  HttpHead head;
  MOTLEY_ASSIGN(head.status, read_status(*first));
  while (true) {
    const auto line = received.take_line();
    if (!line) return wait_for_more<HttpHead>(received);
    if (line->empty()) return std::optional<HttpHead>(head);
    MOTLEY_RETURN_IF_ERROR(read_field(*line, head));
  }
}

/// Each chunk is preceded by a line with its length; length 0 ends the body.
Result<std::optional<std::string>> take_chunks(Received& received) {
  std::string body;
  while (true) {
    const auto line = received.take_line();
    if (!line) return wait_for_more<std::string>(received);
    MOTLEY_ASSIGN(const std::size_t length, read_size(trim(line->substr(0, line->find(';'))), 16));
    if (length == 0) return std::optional<std::string>(std::move(body));
    if (received.rest.size() < length) return wait_for_more<std::string>(received);
    body += received.rest.substr(0, length);
    received.rest.remove_prefix(length);
    const auto end = received.take_line();
    if (!end) return wait_for_more<std::string>(received);
    if (!end->empty()) return no_http("a chunk longer than it says");
  }
}

Result<std::optional<std::string>> take_body(const HttpHead& head, Received& received) {
  if (head.status == 204 || head.status == 304) return std::optional<std::string>("");
  if (head.is_chunked) return take_chunks(received);
  if (!head.length && received.incoming == Incoming::kMore) return std::optional<std::string>();
  const std::size_t length = head.length.value_or(received.rest.size());
  if (received.rest.size() < length) return wait_for_more<std::string>(received);
  return std::optional<std::string>(received.rest.substr(0, length));
}

}  // namespace

Result<std::optional<HttpAnswer>> parse_http_answer(std::string_view text, Incoming incoming) {
  if (text.size() > kMostAnswerBytes)
    return no_http(fmt::format("longer than {} bytes", kMostAnswerBytes));
  Received received{text, incoming};
  std::optional<HttpHead> head;
  do {
    MOTLEY_ASSIGN(head, take_head(received));
    if (!head) return std::optional<HttpAnswer>();
  } while (head->status < 200);
  MOTLEY_ASSIGN(std::optional<std::string> body, take_body(*head, received));
  if (!body) return std::optional<HttpAnswer>();
  return std::optional<HttpAnswer>({head->status, std::move(*body)});
}

}  // namespace motley::run
