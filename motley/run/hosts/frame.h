#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::run {

/// What goes over the pipe between the coordinator and a host's agent: a line of JSON and, where
/// that has "bytes", so many bytes.
struct Frame {
  Json head;
  std::string bytes;
};

/// Bytes of files travel in pieces of at most this.
inline constexpr std::size_t kMostFrameBytes = std::size_t{4} << 20;

/// Frames on their way into a pipe or socket that may be full, or stay so. The descriptor is made
/// one that never blocks.
class FrameWriter {
 public:
  void add(Json head, std::string_view bytes = {});
  /// Bytes that nobody has taken yet.
  std::size_t waiting() const { return text_.size() - begin_; }
  /// Writes what fits. Runtime error `run.pipe`: nobody reads any more.
  Result<void> write_some(int descriptor);
  /// Writes all. Runtime error `run.timeout`: nothing was taken for `patience` seconds.
  Result<void> write_all(int descriptor, double patience);

 private:
  std::string text_;
  std::size_t begin_ = 0;  // of what was not written
};

/// Puts frames together from what a pipe gives.
class FrameReader {
 public:
  /// Reads what is there; false at the end, or when what came is no frame.
  bool read_some(int descriptor);
  void add(std::string_view bytes) { text_ += bytes; }
  /// The next whole frame. Lines that are no JSON object, such as a login shell's greeting, are
  /// skipped.
  std::optional<Frame> next();
  /// The last line that was skipped.
  const std::string& chatter() const { return chatter_; }

 private:
  std::string text_, chatter_;
  std::size_t begin_ = 0;  // of what was not given out
  std::optional<Json> head_;
  std::size_t wanted_ = 0;  // bytes of it
};

}  // namespace motley::run
