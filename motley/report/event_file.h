#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"

namespace motley::report {

/// A TensorBoard event file: TFRecords (length, masked CRC32C, payload, masked CRC32C) of Event
/// messages with scalar summaries. Append only; each process start writes a new file.
class EventFile {
 public:
  static Result<EventFile> create(const std::string& directory, double wall_time);
  EventFile(EventFile&&) noexcept;
  EventFile& operator=(EventFile&&) noexcept;
  ~EventFile();
  struct Scalar {
    std::string tag;
    double value;
  };
  Result<void> write(std::int64_t step, double wall_time, const std::vector<Scalar>& scalars);

 private:
  explicit EventFile(int fd) : fd_(fd) {}
  int fd_ = -1;
};

}  // namespace motley::report
