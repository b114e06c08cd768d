#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"

namespace motley::run {

/// What a worker is doing, kept in a small shared-memory-mapped file run_dir/status/rank-N, so that
/// others can say after its death where it was. Written with relaxed stores: costs nanoseconds.
struct StatusRecord {
  std::atomic<std::int64_t> pid;
  std::atomic<std::int64_t> step;
  std::atomic<std::int64_t> compute_instruction;   ///< -1: none
  std::atomic<std::int64_t> transfer_instruction;  ///< -1: none
  std::atomic<std::int64_t> peer_instruction;  ///< the first send or receive under way; -1: none
  std::atomic<std::int64_t> updated_ns;        ///< steady clock, at each step
};

/// Of a rank's file.
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
  /// The record as numbers, for another machine; and from there.
  std::vector<std::int64_t> numbers() const;
  void set(const std::vector<std::int64_t>& numbers);

 private:
  explicit StatusFile(StatusRecord* record) : record_(record) {}
  StatusRecord* record_ = nullptr;
};

}  // namespace motley::run
