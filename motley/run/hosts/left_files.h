#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "motley/run/hosts/host_link.h"

namespace motley::run {

/// Copies folders to an agent that is to outlive this coordinator. Sends pieces as the network
/// takes them, so that other messages pass between them. A complete folder becomes
/// SCRATCH/left/WHAT/NAME there and replaces the one before.
class LeftFiles {
 public:
  /// Requests a copy of folder `path` as WHAT/NAME. Replaces an earlier request that has not begun.
  void want(const std::string& what, const std::string& name, const std::string& path);
  /// Continues without waiting. Skips folders that cannot be read; does not report a lost agent.
  void go_on(HostLink& link);
  bool is_idle() const { return wanted_.empty() && !sending_; }

 private:
  struct Folder {
    std::string what, name, path;
    bool operator==(const Folder&) const = default;
  };
  struct Sending {
    Folder folder;
    std::string part;  ///< SCRATCH/part, until all has arrived
    std::vector<std::filesystem::path> files;
    std::ifstream stream;  ///< of the last file
    bool is_open = false;
  };

  bool begin();
  bool send_piece(HostLink& link);

  std::map<std::string, Folder> wanted_, sent_;  // by what
  std::optional<Sending> sending_;
  int begun_ = 0;
};

}  // namespace motley::run
