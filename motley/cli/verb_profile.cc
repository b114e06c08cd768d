#include <fmt/format.h>

#include "motley/cli/planning_options.h"
#include "motley/cli/teller.h"
#include "motley/control/correcting.h"
#include "motley/control/measuring.h"

namespace motley::cli {
namespace {

struct ProfileOptions {
  PlanningOptions planning;
  std::string from_run;  ///< run directory whose measured trace corrects the store; else measure
};

std::vector<Flag> profile_flags(ProfileOptions& options) {
  std::vector<Flag> flags = planning_flags(options.planning);
  flags.push_back({"--from-run", &options.from_run,
                   "correct the profile by what this run directory's trace measured"});
  return flags;
}

std::string drift_text(const std::vector<std::string>& drifted) {
  if (drifted.empty()) return "";
  return fmt::format(
      "{} times have drifted: the newest two rounds contradict the older ones and replace them "
      "({}{})\n",
      drifted.size(), drifted[0], drifted.size() > 1 ? ", ..." : "");
}

Result<int> profile_model(const ProfileOptions& options, const Context& context) {
  Teller teller(context);
  const bool corrects = !options.from_run.empty();
  MOTLEY_ASSIGN(
      const control::Question question,
      make_question(options.planning, corrects ? GlobalBatch::kElsewhere : GlobalBatch::kGiven));
  MOTLEY_ASSIGN(const control::Inputs inputs, control::read_inputs(question, teller));
  MOTLEY_ASSIGN(const std::string torch, context.workers->torch_version());
  MOTLEY_ASSIGN(const auto choices, make_price_choices(options.planning, context));
  MOTLEY_ASSIGN(cost::ProfileStore store, control::open_store(choices.profiles));
  MOTLEY_ASSIGN(const control::KeptTimes kept,
                corrects ? control::correct_from_run(options.from_run, torch, inputs, store)
                         : control::measure(inputs, choices.rounds, store, teller.outside()));
  MOTLEY_ASSIGN(const auto drifted, control::find_drifted(inputs, torch, store));
  context.result(fmt::format("measured {} times, spread {:.1f}% (median), kept in {}\n",
                             kept.entries, 100 * kept.spread, choices.profiles) +
                     drift_text(drifted),
                 {{"entries", kept.entries},
                  {"spread", kept.spread},
                  {"drifted", drifted},
                  {"store", choices.profiles}});
  return kDone;
}

}  // namespace

Verb profile_verb() {
  return led(make_verb("profile", "measure a model's operators and the exchanges", profile_flags,
                       profile_model));
}

}  // namespace motley::cli
