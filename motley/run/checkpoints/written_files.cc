#include "motley/run/checkpoints/written_files.h"

namespace motley::run {

Result<void> WrittenFiles::check(const std::string& where) const {
  for (const auto* hashes : {&model, &optimizer})
    for (const auto& [name, hash] : *hashes)
      // A name from a file becomes a path: it must not leave the folder.
      if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
        return usage_error("run.checkpoint",
                           where + (hashes == &model ? ": model_files" : ": optimizer_files") +
                               ": wanted file names with their hashes");
  return {};
}

std::map<std::string, std::vector<std::string>> names_by_host(const HeldFiles& held) {
  std::map<std::string, std::vector<std::string>> names;
  for (const auto& [name, file] : held) names[file.host].push_back(name);
  return names;
}

}  // namespace motley::run
