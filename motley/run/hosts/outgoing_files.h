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

/// A file, or those of a folder, on their way to a coordinator (agent.h, "fetch"), a piece at a
/// time: as they are when it is asked for, whatever becomes of them meanwhile.
class OutgoingFiles {
 public:
  /// What lies at `root`; the coordinator is told paths relative to `base`. `aside`: a folder of
  /// this object's on the same file system, where it keeps further names of the files.
  struct Places {
    std::filesystem::path root, base, aside;
  };
  OutgoingFiles(const Places& places, Json number);
  ~OutgoingFiles();
  OutgoingFiles(OutgoingFiles&& other) noexcept;
  OutgoingFiles& operator=(OutgoingFiles&&) = delete;

  /// The next frame, "fetched" or "failed" as the last one; nothing after it.
  std::optional<Frame> next();

 private:
  struct Entry {
    std::filesystem::path path;  ///< to read
    std::string name;            ///< for the coordinator
    std::string target;          ///< of a symbolic link; "": it is a file
  };
  void add(const std::filesystem::path& path, const Places& places);
  Frame piece(const Entry& entry);

  Json number_;  // of the request
  std::filesystem::path aside_;
  std::vector<Entry> entries_;
  std::size_t at_ = 0;
  std::ifstream stream_;  // of the entry, once it was begun
  bool is_over_ = false;
};

}  // namespace motley::run
