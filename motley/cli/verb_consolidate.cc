#include <fmt/format.h>

#include <filesystem>

#include "motley/cli/verb.h"
#include "motley/run/checkpoint.h"

namespace motley::cli {
namespace {

struct ConsolidateOptions {
  std::string path;    ///< run directory, or one checkpoint
  std::string output;  ///< folder; "" = the checkpoint itself
};

std::vector<Flag> consolidate_flags(ConsolidateOptions& options) {
  return {{"path", &options.path, "run directory, or a checkpoint"},
          {"-o,--output", &options.output,
           "folder of the new checkpoint (default: in place of the old one)"}};
}

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

Result<int> consolidate_checkpoint(const ConsolidateOptions& options, const Context& context) {
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

}  // namespace

Verb consolidate_verb() {
  return make_verb("consolidate", "put a checkpoint's parts together into whole tensors",
                   consolidate_flags, consolidate_checkpoint);
}

}  // namespace motley::cli
