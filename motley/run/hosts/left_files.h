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

/// Folders of files on their way to an agent that is to outlive this coordinator: in pieces between
/// which all else finds room, and which are sent as the cable takes them. There one is
/// SCRATCH/left/WHAT/NAME once all of it has come, in place of the one before.
class LeftFiles {
 public:
  /// The folder `path` is to be there as WHAT/NAME. Of those that have not begun the newest counts.
  void want(const std::string& what, const std::string& name, const std::string& path);
  /// Goes on with what there is to do, without waiting. One that cannot be read is left out; of an
  /// agent that is gone it will be heard.
  void go_on(HostLink& link);
  bool is_idle() const { return wanted_.empty() && !sending_; }

 private:
  struct Folder {
    std::string what, name, path;
    bool operator==(const Folder&) const = default;
  };
  struct Sending {
    Folder folder;
    std::string part;  ///< SCRATCH/part, until all has come
    std::vector<std::filesystem::path> files;
    std::ifstream stream;  ///< of the last of them
    bool is_open = false;
  };

  bool begin();
  bool send_piece(HostLink& link);

  std::map<std::string, Folder> wanted_, sent_;  // by what
  std::optional<Sending> sending_;
  int begun_ = 0;
};

}  // namespace motley::run
