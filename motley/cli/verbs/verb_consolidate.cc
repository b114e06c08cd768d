#include <fmt/format.h>

#include <filesystem>

#include "motley/base/text.h"
#include "motley/cli/context/verb.h"
#include "motley/control/claim.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/run/checkpoints/hugging_face.h"

namespace motley::cli {
namespace {

struct ConsolidateOptions {
  std::string path;    ///< run directory, or one checkpoint
  std::string output;  ///< folder; "": the checkpoint itself
  std::string source;  ///< --hf: transformers folder of the original model
  std::string shard;   ///< largest size of a weight file, in bytes
  bool hosts = false;
  std::string launcher = "ssh";
};

std::vector<Flag> consolidate_flags(ConsolidateOptions& options) {
  return {
      {"path", &options.path, "run directory, or a checkpoint"},
      {"-o,--output", &options.output,
       "folder of the new checkpoint (default: in place of the old one)"},
      {"--hf", &options.source,
       "write the model for from_pretrained of transformers, with the configuration of the "
       "folder it was exported from (hf:FOLDER)"},
      {"--shard-size", &options.shard,
       "with --hf: largest file of weights, such as 2GiB (default: 5GiB)"},
      {"--hosts", &options.hosts, "fetch the parts that hosts keep (run --checkpoint hosts) first"},
      {"--launcher", &options.launcher, "with --hosts: how hosts are reached, as for run"}};
}

/// Returns the named checkpoint, or the latest one of the named run directory.
Result<std::string> find_checkpoint(const std::string& path) {
  std::error_code fault;
  if (std::filesystem::exists(path + "/state.json", fault)) return path;
  const std::string latest = run::CheckpointStore(path).latest();
  if (!latest.empty()) return latest;
  return usage_error(
      "cli.checkpoint",
      fmt::format("{}: neither a checkpoint nor a run directory that has one", path));
}

/// Returns "out" for "out/", because temporary output goes beside the folder.
std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

/// Usage error: the folder is a run directory in use, or a checkpoint in one.
Result<void> check_target(const std::string& target) {
  const std::filesystem::path folder = std::filesystem::absolute(target).lexically_normal();
  for (const std::filesystem::path& run : {folder, folder.parent_path().parent_path()})
    MOTLEY_RETURN_IF_ERROR(control::check_not_in_use({run.string()}));
  return {};
}

Result<int> write_folder(const run::Checkpoint& checkpoint, const ConsolidateOptions& options,
                         const Context& context) {
  if (options.output.empty())
    return usage_error("cli.flags", "--hf: found no -o, wanted the folder to write");
  run::HuggingFaceOptions wanted{.source = options.source,
                                 .target = without_slashes(options.output)};
  if (!options.shard.empty()) {
    const auto most = parse_bytes(options.shard);
    if (!most) return with_context("--shard-size", most.error());
    wanted.shard_bytes = most->value;
  }
  MOTLEY_ASSIGN(const run::HuggingFaceFolder made,
                run::write_hugging_face(checkpoint.model, wanted));
  context.result(
      fmt::format(
          "step {}: {}: config.json and {} of weights, for from_pretrained\n",
          checkpoint.state.step, wanted.target,
          made.weights.size() == 1 ? "a file" : fmt::format("{} files", made.weights.size())),
      {{"folder", wanted.target},
       {"step", checkpoint.state.step},
       {"weights", made.weights},
       {"left_out", made.left_out}});
  return kDone;
}

Result<int> consolidate_checkpoint(const ConsolidateOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const std::string path, find_checkpoint(options.path));
  const std::string target = without_slashes(options.output.empty() ? path : options.output);
  MOTLEY_RETURN_IF_ERROR(check_target(target));
  if (options.hosts) {
    MOTLEY_RETURN_IF_ERROR(check_target(path));
    MOTLEY_RETURN_IF_ERROR(context.workers->reach_by(options.launcher));
    MOTLEY_RETURN_IF_ERROR(context.workers->gather_held(path));
  }
  MOTLEY_ASSIGN(const run::Checkpoint checkpoint, run::open_checkpoint(path));
  if (!options.source.empty()) return write_folder(checkpoint, options, context);
  if (!options.shard.empty())
    return usage_error("cli.flags", "--shard-size: belongs to --hf; leave it out");
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
  return make_verb("consolidate", "join the parts of a checkpoint into whole tensors",
                   consolidate_flags, consolidate_checkpoint);
}

}  // namespace motley::cli
