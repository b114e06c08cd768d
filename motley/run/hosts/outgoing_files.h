#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/frame.h"

namespace motley::run {

/// Sends a file or a folder's files to a coordinator (agent.h, "fetch"), piece by piece, in the
/// state they had at the request even if they are replaced meanwhile.
class OutgoingFiles {
 public:
  /// `root`: what is sent; paths are sent relative to `base`. `aside`: this object's own folder on
  /// the same file system, for additional hard links to the files.
  struct Places {
    std::filesystem::path root, base, aside;
  };
  OutgoingFiles(const Places& places, Json number);
  ~OutgoingFiles();
  OutgoingFiles(OutgoingFiles&& other) noexcept;
  OutgoingFiles& operator=(OutgoingFiles&&) = delete;

  /// Returns the next frame; the last one is "fetched" or "failed". None after it.
  std::optional<Frame> next();

 private:
  struct Entry {
    std::filesystem::path path;  ///< to read
    std::string name;            ///< for the coordinator
    std::string target;          ///< of a symbolic link; "": a file
  };
  void add(const std::filesystem::path& path, const Places& places);
  Frame piece(const Entry& entry);

  Json number_;  // of the request
  std::filesystem::path aside_;
  std::vector<Entry> entries_;
  std::size_t at_ = 0;
  std::ifstream stream_;  // of the current entry
  bool is_over_ = false;
};

}  // namespace motley::run
