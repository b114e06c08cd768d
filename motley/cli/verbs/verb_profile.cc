#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "motley/cli/context/progress_printer.h"
#include "motley/cli/options/planning_options.h"
#include "motley/control/planning/identical_devices.h"
#include "motley/control/planning/measuring.h"
#include "motley/control/training/correcting.h"

namespace motley::cli {
namespace {

struct ProfileOptions {
  PlanningOptions planning;
  std::string from_run;  ///< run directory whose trace corrects the store; "": measure
  bool each = false;     ///< compare devices that the profile considers identical
};

std::vector<Flag> profile_flags(ProfileOptions& options) {
  std::vector<Flag> flags = planning_flags(options.planning);
  flags.push_back({"--from-run", &options.from_run,
                   "correct the profile by the trace that this run directory measured"});
  flags.push_back({"--each", &options.each,
                   "time all devices of a kind against each other first and name the slower ones"});
  return flags;
}

std::string drift_text(const std::vector<std::string>& drifted) {
  if (drifted.empty()) return "";
  return fmt::format(
      "{} times have drifted: the newest two rounds contradict the older ones and replace them "
      "({}{})\n",
      drifted.size(), drifted[0], drifted.size() > 1 ? ", ..." : "");
}

std::string host_of(const control::Inputs& inputs, DeviceId id) {
  const cluster::Node& node = inputs.cluster.node(inputs.cluster.device(id).node);
  return node.host.empty() ? node.name : node.host;
}

std::vector<control::Compared> slower_of(std::vector<control::Compared> compared) {
  std::erase_if(compared, [](const control::Compared& each) { return !each.is_slower(); });
  return compared;
}

std::string slower_text(const control::Inputs& inputs,
                        const std::vector<control::Compared>& slower) {
  std::string text;
  for (const control::Compared& each : slower) {
    const cluster::Device& device = inputs.cluster.device(each.device);
    text += fmt::format(
        "{} on host {} takes {:.2f} times as long as its like, above {:.2f}, which counts as "
        "slower; plans take it for one of them until its model is its own in the cluster file: "
        "model = \"{} (slow)\"\n",
        device.name, host_of(inputs, each.device), each.ratio, each.limit,
        device.model.empty() ? device.kind : device.model);
  }
  return text;
}

Json compared_to_json(const control::Inputs& inputs,
                      const std::vector<control::Compared>& compared) {
  Json list = Json::array();
  for (const control::Compared& each : compared)
    list.push_back({{"device", inputs.cluster.device(each.device).name},
                    {"host", host_of(inputs, each.device)},
                    {"ratio", each.ratio},
                    {"limit", each.limit}});
  return list;
}

Result<int> profile_model(const ProfileOptions& options, const Context& context) {
  ProgressPrinter printer(context);
  const bool corrects = !options.from_run.empty();
  if (corrects && options.each)
    return usage_error("cli.flags", "--each measures and --from-run does not: give one of them");
  MOTLEY_ASSIGN(
      const control::Question question,
      make_question(options.planning, corrects ? GlobalBatch::kElsewhere : GlobalBatch::kGiven));
  MOTLEY_ASSIGN(control::Inputs inputs, control::read_inputs(question, printer));
  MOTLEY_ASSIGN(const std::string torch, context.workers->torch_version());
  MOTLEY_ASSIGN(const auto choices, make_price_choices(options.planning, context));
  MOTLEY_ASSIGN(cost::ProfileStore store, control::open_store(choices.profiles));
  std::vector<control::Compared> compared;
  if (options.each) {
    MOTLEY_ASSIGN(compared, control::compare_equals(inputs, choices.rounds, printer.outside()));
    inputs = control::with_slower_last(std::move(inputs), compared);
  }
  MOTLEY_ASSIGN(const control::KeptTimes kept,
                corrects ? control::correct_from_run(options.from_run, torch, inputs, store)
                         : control::measure(inputs, choices.rounds, store, printer.outside()));
  MOTLEY_ASSIGN(const auto drifted, control::find_drifted(inputs, torch, store));
  context.result(fmt::format("measured {} times, spread {:.1f}% (median), kept in {}\n",
                             kept.entries, 100 * kept.spread, choices.profiles) +
                     drift_text(drifted) + slower_text(inputs, slower_of(compared)),
                 {{"entries", kept.entries},
                  {"spread", kept.spread},
                  {"drifted", drifted},
                  {"compared", compared_to_json(inputs, compared)},
                  {"slower", compared_to_json(inputs, slower_of(compared))},
                  {"store", choices.profiles}});
  return kDone;
}

}  // namespace

Verb profile_verb() {
  return led(make_verb("profile", "measure a model's operators and collectives", profile_flags,
                       profile_model));
}

}  // namespace motley::cli
