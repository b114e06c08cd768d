#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley {
class JsonObject;
}

namespace motley::run {

/// Where a file of a checkpoint lies that the host of its rank keeps (`--checkpoint hosts`).
struct HeldFile {
  std::string host;
  std::string folder;  ///< below what the host keeps (agent.h)
  bool operator==(const HeldFile&) const = default;
};
/// By the file's name.
using HeldFiles = std::map<std::string, HeldFile>;

/// The files that ranks wrote, by name, with their hashes.
struct WrittenFiles {
  std::map<std::string, std::string> model, optimizer;
  HeldFiles held;  ///< those of them that do not lie in the checkpoint's folder
};
Json written_files_to_json(const WrittenFiles& files);
/// Of an object that may have other members.
Result<WrittenFiles> read_written_files(JsonObject& object);
Result<WrittenFiles> written_files_from_json(const Json& json, const std::string& where);

/// Names of files by the host that has them.
std::map<std::string, std::vector<std::string>> names_by_host(const HeldFiles& held);

}  // namespace motley::run
