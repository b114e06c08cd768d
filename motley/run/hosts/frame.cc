#include "motley/run/hosts/frame.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace motley::run {
namespace {

constexpr std::size_t kMostHead = std::size_t{64} << 20;  // a line: a whole program's job at most

Result<void> write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return runtime_error("run.pipe", std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace

Result<void> write_frame(int descriptor, Json head, std::string_view bytes) {
  if (!bytes.empty()) head["bytes"] = bytes.size();
  std::string text = head.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  text += bytes;
  return write_all(descriptor, text);
}

bool FrameReader::read_some(int descriptor) {
  char bytes[1 << 16];
  const ssize_t count = ::read(descriptor, bytes, sizeof bytes);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (count > 0) add({bytes, static_cast<std::size_t>(count)});
  return count > 0 && text_.size() - begin_ < kMostHead + kMostFrameBytes;
}

std::optional<Frame> FrameReader::next() {
  while (!head_) {
    const std::size_t end = text_.find('\n', begin_);
    if (end == std::string::npos) {
      text_.erase(0, std::exchange(begin_, 0));
      return std::nullopt;
    }
    const std::string_view line = std::string_view(text_).substr(begin_, end - begin_);
    begin_ = end + 1;
    Json head = Json::parse(line, nullptr, false);
    if (!head.is_object()) {
      chatter_ = line;
      continue;
    }
    const auto bytes = head.find("bytes");
    wanted_ = bytes != head.end() && bytes->is_number_unsigned() ? bytes->get<std::size_t>() : 0;
    head_ = std::move(head);
  }
  if (text_.size() - begin_ < wanted_) return std::nullopt;
  Frame frame{*std::exchange(head_, std::nullopt), text_.substr(begin_, wanted_)};
  begin_ += wanted_;
  return frame;
}

}  // namespace motley::run
