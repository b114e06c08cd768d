#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"

namespace motley::run {

/// The position of a worker, kept in a small memory-mapped file run_dir/status/rank-N so that
/// others can read it after the worker's death. Relaxed stores cost nanoseconds.
struct StatusRecord {
  std::atomic<std::int64_t> pid;
  std::atomic<std::int64_t> step;
  std::atomic<std::int64_t> compute_instruction;   ///< -1: none
  std::atomic<std::int64_t> transfer_instruction;  ///< -1: none
  std::atomic<std::int64_t> peer_instruction;      ///< first send or receive in flight; -1: none
  std::atomic<std::int64_t> updated_ns;            ///< steady clock, at each step
};

std::string status_path(const std::string& run_dir, int rank);

class StatusFile {
 public:
  /// Creates (writer) or maps (reader) the file.
  static Result<StatusFile> create(const std::string& run_dir, int rank);
  static Result<StatusFile> open(const std::string& run_dir, int rank);
  StatusFile(StatusFile&&) noexcept;
  StatusFile& operator=(StatusFile&&) noexcept;
  ~StatusFile();
  StatusRecord& record() const { return *record_; }
  /// Converts the record to and from numbers, for transfer between machines.
  std::vector<std::int64_t> numbers() const;
  void set(const std::vector<std::int64_t>& numbers);

 private:
  explicit StatusFile(StatusRecord* record) : record_(record) {}
  StatusRecord* record_ = nullptr;
};

}  // namespace motley::run
