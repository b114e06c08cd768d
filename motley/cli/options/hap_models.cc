#include "motley/cli/options/hap_models.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cluster/cluster.h"
#include "peers/hap/planners.h"

namespace motley::cli {
namespace {

/// Refuses flags of exported models, because they have no meaning for HAP's workloads.
Result<void> verify_flags(const PlanningOptions& options, const HapFlags& hap,
                          const std::string& output) {
  const auto fault = [](std::string message) { return usage_error("cli.hap", std::move(message)); };
  const std::string planners = join(peers::hap_planner_names(), " or ");
  if (!peers::is_hap_planner(options.planner))
    return fault(fmt::format("--hap-model goes with --planner {}; found --planner {}", planners,
                             options.planner));
  if (!options.model.empty())
    return fault(
        fmt::format("--planner {} plans HAP's own workloads: give --hap-model in place of "
                    "-m, or --planner hap for an exported model",
                    options.planner));
  if (hap.model.empty())
    return fault(fmt::format("which workload? give --hap-model, one of {}",
                             join(peers::hap_model_names(), " ")));
  if (options.global_batch != 0)
    return fault("HAP's workloads have 32 samples a device: leave --global-batch out");
  if (!output.empty())
    return fault(
        "HAP's plans are of its own graphs and run nowhere: leave -o out; --json has them");
  return {};
}

Result<peers::NamedCluster> find_cluster(const PlanningOptions& options, const HapFlags& hap) {
  if (options.cluster.empty()) return peers::make_named_cluster(hap.cluster);
  MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(options.cluster));
  std::vector<bool> is_excluded(cluster.devices.size());
  for (const std::string& name : options.exclude) {
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(cluster, name));
    is_excluded[id.index()] = true;
  }
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    if (!is_excluded[i]) devices.emplace_back(static_cast<std::int64_t>(i));
  return peers::view_as_hap(cluster, devices);
}

std::string print_answer(const PlanningOptions& options, const HapFlags& hap,
                         const peers::NamedCluster& cluster, const peers::HapAnswer& answer) {
  const auto line = [](const char* name, double seconds) {
    return fmt::format("  {:<22} {:>10}\n", name, format_seconds(Seconds(seconds)));
  };
  std::string text =
      fmt::format("{} of {} on {}: step {}, {:.1f} % above the bound\n\n", options.planner,
                  hap.model, cluster.name, format_seconds(Seconds(answer.plan.program.seconds)),
                  100 * (answer.plan.program.seconds / answer.lower_bound - 1));
  text += line("bound: all flops", answer.lower_bound);
  text += line("data parallel, even", answer.equal_split);
  text += line("data parallel, by speed", answer.proportional_split);
  text += line("fastest device alone", answer.best_single);
  std::vector<std::pair<std::string, std::string>> rows;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    rows.emplace_back(cluster.devices[i], fmt::format("{:>8.3f} %", 100 * answer.plan.shares[i]));
  text += "\n" + print_rows(rows) + "\n";
  for (const std::string& why : answer.why) text += "  " + why + "\n";
  return text;
}

Json answer_to_json(const PlanningOptions& options, const HapFlags& hap,
                    const peers::NamedCluster& cluster, const peers::HapAnswer& answer) {
  Json shares = Json::object();
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    shares[cluster.devices[i]] = answer.plan.shares[i];
  const auto step = [](double seconds) { return Json{{"step_s", seconds}}; };
  return {{"planner", options.planner},
          {"model", hap.model},
          {"cluster", cluster.name},
          {"outcome", "feasible"},
          {"predicted_step_s", answer.plan.program.seconds},
          {"lower_bound_s", answer.lower_bound},
          {"shares", shares},
          {"idle", Json::array()},  // no share of balance() is 0
          {"baselines",
           {{"equal_split", step(answer.equal_split)},
            {"proportional_split", step(answer.proportional_split)},
            {"best_single", step(answer.best_single)}}},
          {"considered", answer.plan.program.expansions},
          {"why", answer.why}};
}

}  // namespace

std::vector<Flag> hap_flags(HapFlags& flags) {
  const std::string group = "HAP's own workloads, with --planner hap-released or hap-described";
  return {{"--hap-model", &flags.model,
           "bert12, vit12, vgg19 or bert-moe12; bert, vit, bert-moe of other depths",
           Flag::Default::kHidden, group},
          {"--hap-cluster", &flags.cluster,
           "v100-p100:N or equal:N; -C CLUSTER.toml takes its place", kShown, group}};
}

bool asks_for_hap(const PlanningOptions& options, const HapFlags& hap) {
  return peers::is_hap_planner(options.planner) || !hap.model.empty();
}

Result<int> plan_hap(const PlanningOptions& options, const HapFlags& hap, const std::string& output,
                     const Context& context) {
  MOTLEY_RETURN_IF_ERROR(verify_flags(options, hap, output));
  MOTLEY_ASSIGN(const peers::NamedCluster cluster, find_cluster(options, hap));
  MOTLEY_ASSIGN(
      const auto graph,
      peers::make_named_model(hap.model, static_cast<std::int64_t>(cluster.devices.size())));
  const Seconds start = context.clock->steady();
  MOTLEY_ASSIGN(const peers::HapAnswer answer, peers::ask_hap(options.planner, graph, cluster));
  Json object = answer_to_json(options, hap, cluster, answer);
  object["elapsed_s"] = (context.clock->steady() - start).value;
  context.result(print_answer(options, hap, cluster, answer), object);
  return kDone;
}

}  // namespace motley::cli
