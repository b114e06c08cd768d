#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "motley/base/result.h"
#include "motley/run/hosts/frame.h"

namespace motley::run {

/// Receives another machine's files into a local folder, piece by piece (see OutgoingFiles).
class Arrival {
 public:
  /// Receives what lies below `root` there into `into`.
  Arrival(std::string root, std::string into) : root_(std::move(root)), into_(std::move(into)) {}
  /// Takes the next frame. After a local failure it ignores the rest.
  void take(const Frame& frame);
  bool is_over() const { return is_over_; }
  /// Errors: agent.read: the other end could not read; `host.fetch`: it cannot be written here.
  const Result<void>& outcome() const { return outcome_; }
  std::int64_t bytes() const { return bytes_; }  ///< received
  std::int64_t files() const { return files_; }  ///< whole files, and links

 private:
  Result<void> write(const Frame& frame);
  Result<void> make_link(const std::filesystem::path& path, const std::string& target);
  std::filesystem::path place(const std::string& path) const;

  std::string root_, into_;
  std::ofstream stream_;  // the file in progress
  std::int64_t bytes_ = 0, files_ = 0;
  bool is_over_ = false;
  Result<void> outcome_;
};

}  // namespace motley::run
