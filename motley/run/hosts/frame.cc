#include "motley/run/hosts/frame.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "motley/run/hosts/elapsed.h"

namespace motley::run {
namespace {

constexpr int kRoomWaitMs = 100;
constexpr std::size_t kMostHead = std::size_t{64} << 20;  // one line: at most a whole program's job

}  // namespace

void FrameWriter::add(Json head, std::string_view bytes) {
  if (!bytes.empty()) head["bytes"] = bytes.size();
  text_.erase(0, std::exchange(begin_, 0));
  text_ += head.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  text_ += bytes;
}

Result<void> FrameWriter::write_some(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  if ((flags & O_NONBLOCK) == 0) ::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK);
  while (waiting() > 0) {
    const ssize_t count = ::write(descriptor, text_.data() + begin_, waiting());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return {};
    if (count <= 0) return runtime_error("run.pipe", std::strerror(errno));
    begin_ += static_cast<std::size_t>(count);
  }
  return {};
}

Result<void> FrameWriter::write_all(int descriptor, double patience) {
  auto begin = Clock::now();
  while (true) {
    const std::size_t before = waiting();
    MOTLEY_RETURN_IF_ERROR(write_some(descriptor));
    if (waiting() == 0) return {};
    if (waiting() < before) begin = Clock::now();
    if (seconds_since(begin) >= patience)
      return runtime_error("run.timeout",
                           fmt::format("nothing could be sent for {:.0f} s", patience));
    pollfd wait{descriptor, POLLOUT, 0};
    ::poll(&wait, 1, kRoomWaitMs);
  }
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
