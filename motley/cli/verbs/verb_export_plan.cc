#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/cli/context/verb.h"
#include "motley/graph/model_file.h"
#include "motley/report/plan_export.h"

namespace motley::cli {
namespace {

struct ExportFlags {
  std::string plan, model, cluster, tool, output;
};

std::vector<Flag> export_flags(ExportFlags& flags) {
  return {{"plan", &flags.plan, "plan file"},
          {"-m,--model", &flags.model, "model of the plan"},
          {"-C,--cluster", &flags.cluster, "cluster of the plan"},
          {"--to", &flags.tool, "megatron, torchtitan, deepspeed or torchrun"},
          {"-o,--output", &flags.output, "file to write (default: stdout)"}};
}

Result<int> call(const ExportFlags& flags, const Context& context) {
  if (flags.model.empty() || flags.cluster.empty() || flags.tool.empty())
    return usage_error("cli.flags", "wanted -m MODEL, -C CLUSTER and --to TOOL");
  MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(flags.cluster));
  MOTLEY_ASSIGN(const graph::Model model, graph::read_model(flags.model));
  MOTLEY_ASSIGN(const std::string text, read_file(flags.plan));
  MOTLEY_ASSIGN(const plan::Plan plan, plan::parse_plan(text, flags.plan, cluster));
  if (const auto verified = plan::verify_plan(plan, model.hash, cluster); !verified)
    return with_context(flags.plan, verified.error());
  MOTLEY_ASSIGN(const report::PlanSettings settings,
                report::export_plan(flags.tool, plan, model.graph, cluster));
  if (!flags.output.empty()) MOTLEY_RETURN_IF_ERROR(write_file_atomic(flags.output, settings.text));
  std::string shown = flags.output.empty() ? settings.text : "wrote " + flags.output + "\n";
  for (const std::string& note : settings.notes) shown += "# not said: " + note + "\n";
  context.result(shown,
                 {{"tool", flags.tool}, {"settings", settings.text}, {"notes", settings.notes}});
  return kDone;
}

}  // namespace

Verb export_plan_verb() {
  return make_verb("export-plan",
                   "write a plan as settings of Megatron, torchtitan, DeepSpeed or torchrun",
                   export_flags, call);
}

}  // namespace motley::cli
