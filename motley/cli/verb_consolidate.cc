#include <fmt/format.h>

#include <filesystem>

#include "motley/cli/verbs.h"
#include "motley/run/checkpoint.h"

namespace motley::cli {
namespace {

/// The checkpoint that a path names, or the latest one of the run directory that it names.
Result<std::string> find_checkpoint(const std::string& path) {
  std::error_code fault;
  if (std::filesystem::exists(path + "/state.json", fault)) return path;
  const std::string latest = run::CheckpointStore(path).latest();
  if (!latest.empty()) return latest;
  return usage_error(
      "cli.checkpoint",
      fmt::format("{}: neither a checkpoint nor a run directory that has one", path));
}

}  // namespace

Result<int> consolidate_verb(const ConsolidateOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const std::string path, find_checkpoint(options.path));
  MOTLEY_ASSIGN(const run::Checkpoint checkpoint, run::open_checkpoint(path));
  const std::string target = options.output.empty() ? path : options.output;
  MOTLEY_RETURN_IF_ERROR(run::consolidate(checkpoint, target));
  context.result(fmt::format("step {}: {} files of {} became {}/model.safetensors and "
                             "optimizer.safetensors\n",
                             checkpoint.state.step, checkpoint.files.size(), path, target),
                 {{"checkpoint", target},
                  {"step", checkpoint.state.step},
                  {"files", checkpoint.files.size()}});
  return kDone;
}

}  // namespace motley::cli
