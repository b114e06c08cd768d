#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::run {

/// A message between coordinator and agent: a line of JSON and, if that has "bytes", so many bytes.
struct Frame {
  Json head;
  std::string bytes;
};

/// The largest piece of a file that one frame carries.
inline constexpr std::size_t kMostFrameBytes = std::size_t{4} << 20;

/// Writes frames into a pipe or socket that may stay full. Makes the descriptor non-blocking.
class FrameWriter {
 public:
  void add(Json head, std::string_view bytes = {});
  std::size_t waiting() const { return text_.size() - begin_; }
  /// Writes what fits. Runtime error `run.pipe`: nobody reads any more.
  Result<void> write_some(int descriptor);
  /// Writes everything. Runtime error `run.timeout`: nothing was taken for `patience` seconds.
  Result<void> write_all(int descriptor, double patience);

 private:
  std::string text_;
  std::size_t begin_ = 0;  // start of the unwritten bytes
};

/// Assembles frames from what a pipe delivers.
class FrameReader {
 public:
  /// Reads available bytes. False: the end was reached, or the input is not a frame.
  bool read_some(int descriptor);
  void add(std::string_view bytes) { text_ += bytes; }
  /// Returns the next whole frame. Skips lines that are not JSON objects, as a shell's greeting.
  std::optional<Frame> next();
  const std::string& chatter() const { return chatter_; }

 private:
  std::string text_, chatter_;
  std::size_t begin_ = 0;  // start of the unread bytes
  std::optional<Json> head_;
  std::size_t wanted_ = 0;  // bytes of its payload
};

}  // namespace motley::run
