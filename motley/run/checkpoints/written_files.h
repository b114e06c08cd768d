#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/base/result.h"

namespace motley::run {

/// The place of a checkpoint file that its rank's host keeps (`--checkpoint hosts`).
struct HeldFile {
  std::string host;
  std::string folder;  ///< below the host's kept folder (agent.h)
  bool operator==(const HeldFile&) const = default;
  static void fields(auto& it, auto& field) { field("host", it.host)("folder", it.folder); }
};
/// Keyed by file name.
using HeldFiles = std::map<std::string, HeldFile>;

/// The files that ranks wrote, by name, with their hashes.
struct WrittenFiles {
  std::map<std::string, std::string> model, optimizer;
  HeldFiles held;  ///< those that are not in the checkpoint's folder
  static void fields(auto& it, auto& field) {
    field("model_files", it.model)("optimizer_files", it.optimizer);
    field.when(!it.held.empty(), "held", it.held);
  }
  Result<void> check(const std::string& where) const;
};

std::map<std::string, std::vector<std::string>> names_by_host(const HeldFiles& held);

}  // namespace motley::run
