#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "motley/base/file.h"
#include "motley/cli/context/verb.h"
#include "motley/report/manifest.h"

namespace motley::cli {
namespace {

struct ManifestFlags {
  std::string scheduler, cluster, output;
  report::ManifestOptions options;
};

std::vector<Flag> manifest_flags(ManifestFlags& flags) {
  return {{"scheduler", &flags.scheduler, "slurm, kubernetes or skypilot"},
          {"words", &flags.options.words,
           "the command of the job, after --: -- run -m cnn.motley --data digits.npz ..."},
          {"-C,--cluster", &flags.cluster, "cluster file"},
          {"-o,--output", &flags.output, "job file to write (default: stdout)"},
          {"--time", &flags.options.time, "slurm: time limit of the job, such as 02:00:00"},
          {"--image", &flags.options.image, "kubernetes: container image that has Motley"},
          {"--claim", &flags.options.claim,
           "kubernetes: volume claim with the job's files; mounted at /job"}};
}

/// Checks the verb: only some may be started as several processes (Verb::is_led).
Result<void> check_words(const std::vector<std::string>& words) {
  const std::set<std::string> known = {"probe", "profile", "plan", "run", "verify"};
  if (known.contains(words.front())) return {};
  return usage_error("manifest.words",
                     fmt::format("behind --: found '{}', wanted probe, profile, plan, run or "
                                 "verify, with its flags",
                                 words.front()));
}

Result<int> write_manifest(const ManifestFlags& flags, const Context& context) {
  report::ManifestOptions options = flags.options;
  if (flags.cluster.empty())
    return usage_error("cli.flags", "found no -C, wanted the cluster file");
  MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(flags.cluster));
  MOTLEY_RETURN_IF_ERROR(check_words(options.words));
  options.cluster_file = flags.cluster;
  const bool names_cluster = std::any_of(
      options.words.begin(), options.words.end(),
      [](const std::string& word) { return word == "-C" || word.starts_with("--cluster"); });
  if (!names_cluster && options.words.front() != "probe") {
    options.words.push_back("-C");
    options.words.push_back(flags.cluster);
  }
  MOTLEY_ASSIGN(const std::string text, report::print_manifest(flags.scheduler, cluster, options));
  if (!flags.output.empty()) MOTLEY_RETURN_IF_ERROR(write_file_atomic(flags.output, text));
  context.result(
      flags.output.empty()
          ? text
          : fmt::format("wrote {} ({} nodes)\n", flags.output, cluster.nodes.size()),
      {{"scheduler", flags.scheduler}, {"nodes", cluster.nodes.size()}, {"manifest", text}});
  return kDone;
}

}  // namespace

Verb manifest_verb() {
  return make_verb("manifest", "write a scheduler's job file for a cluster file", manifest_flags,
                   write_manifest);
}

}  // namespace motley::cli
