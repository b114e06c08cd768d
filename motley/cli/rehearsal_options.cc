#include "motley/cli/rehearsal_options.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/cli/print_decisions.h"
#include "motley/control/splits.h"
#include "motley/control/trials.h"

namespace motley::cli {
namespace {

constexpr const char* kRehearsalGroup = "Policies";

Result<std::shared_ptr<control::Adaptation>> make_adaptation(const RehearsalOptions& options,
                                                             const control::ChosenPlan& chosen,
                                                             const control::Predicted& predicted,
                                                             control::Listener& listener) {
  if (options.adapt == "split")
    return control::adapt_split(chosen, predicted,
                                options.policy.empty() ? "motley" : options.policy);
  MOTLEY_ASSIGN(auto found, control::find_trials(chosen, predicted));
  if (found) return found;
  listener.note("no other plan is worth a trial");
  auto alone = std::make_shared<control::Adaptation>();
  alone->candidates.push_back(
      {control::describe_plan(chosen.planned.plan, chosen.inputs.cluster), chosen.planned});
  return alone;
}

std::string rehearsal_line(const control::Rehearsed& rehearsed, const std::string& name) {
  const auto time = [](Seconds seconds) {
    return seconds.value > 0 ? format_seconds(seconds) : std::string("-");
  };
  return fmt::format("  {:<14} {:>7} {:>10} {:>9.4g} {:>10} {:>8} {:>9} {:>6} {:>10}\n", name,
                     rehearsed.step_s.size(), format_seconds(rehearsed.total),
                     rehearsed.steps_per_second(),
                     format_seconds(Seconds(median(rehearsed.step_s))), rehearsed.changes,
                     time(rehearsed.paused), rehearsed.lost_steps, time(rehearsed.lost));
}

Json rehearsed_to_json(const control::Rehearsed& rehearsed) {
  return {{"policy", rehearsed.policy},
          {"steps", rehearsed.step_s.size()},
          {"total_s", rehearsed.total.value},
          {"steps_per_s", rehearsed.steps_per_second()},
          {"step_s_median", median(rehearsed.step_s)},
          {"changes", rehearsed.changes},
          {"paused_s", rehearsed.paused.value},
          {"lost_steps", rehearsed.lost_steps},
          {"lost_s", rehearsed.lost.value},
          {"stopped", rehearsed.stopped.empty() ? Json(nullptr) : Json(rehearsed.stopped)}};
}

}  // namespace

std::vector<Flag> rehearsal_flags(RehearsalOptions& o) {
  return {{"--adapt", &o.adapt,
           "plan or split: simulate a training of --steps that decides as `run --adapt` does",
           Flag::Default::kHidden, kRehearsalGroup},
          {"--policy", &o.policy,
           "with --adapt split: motley (default), even, hetseq, adaptdl, lb-bsp or cannikin",
           Flag::Default::kHidden, kRehearsalGroup},
          {"--decisions", &o.decisions, "with --adapt: decisions.jsonl to write",
           Flag::Default::kHidden, kRehearsalGroup},
          {"--change-steps", &o.change_steps,
           "with --adapt: steps still done as before when a change was decided", kShown,
           kRehearsalGroup},
          {"--change-pause", &o.change_pause,
           "with --adapt: seconds that a change takes, beside moving tensors", kShown,
           kRehearsalGroup}};
}

Result<void> check_rehearsal(const RehearsalOptions& options, std::int64_t steps) {
  if (options.adapt.empty()) {
    if (!options.policy.empty() || !options.decisions.empty())
      return usage_error(options.policy.empty() ? "cli.decisions" : "cli.policy",
                         fmt::format("{} goes with --adapt plan or --adapt split",
                                     options.policy.empty() ? "--decisions" : "--policy"));
    return {};
  }
  if (options.adapt != "plan" && options.adapt != "split")
    return usage_error("cli.adapt", "--adapt: found '" + options.adapt + "', wanted plan or split");
  if (options.adapt == "plan" && !options.policy.empty() && options.policy != "motley")
    return usage_error("cli.policy", "--policy goes with --adapt split");
  if (steps < 1) return usage_error("cli.steps", "--steps: wanted a number above 0");
  if (options.change_steps < 0)
    return usage_error("cli.change", "--change-steps: wanted a number from 0 on");
  if (!(options.change_pause >= 0 && options.change_pause <= 1e9))
    return usage_error("cli.change", "--change-pause: wanted seconds from 0 to 1e9");
  return {};
}

Result<Rehearsals> rehearse_training(const RehearsalOptions& options,
                                     const control::ChosenPlan& chosen,
                                     const control::Predicted& predicted,
                                     control::RehearsalChoices choices,
                                     control::Listener& listener) {
  if (options.adapt == "plan" && !choices.conditions.absences.empty())
    return usage_error("cli.conditions",
                       "--adapt plan: device '" + choices.conditions.absences[0].device +
                           "' goes away, and plans that are tried stay as they are; leave "
                           "absences out, or take --adapt split");
  choices.change_steps = options.change_steps;
  choices.change_pause = Seconds(options.change_pause);
  MOTLEY_ASSIGN(const auto adaptation, make_adaptation(options, chosen, predicted, listener));
  Rehearsals rehearsals{.adapt = options.adapt};
  control::SilentListener silent;
  MOTLEY_ASSIGN(rehearsals.as_planned,
                control::rehearse_as_planned(chosen, *adaptation, choices, silent));
  MOTLEY_ASSIGN(rehearsals.knowing_all,
                control::rehearse_knowing_all(chosen, *adaptation, choices));
  MOTLEY_ASSIGN(rehearsals.decided,
                control::rehearse(chosen, std::move(*adaptation), choices, listener));
  if (options.decisions.empty()) return rehearsals;
  std::string lines;
  for (const policy::Decision& decision : rehearsals.decided.decisions)
    lines += policy::print_decision(decision) + "\n";
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(options.decisions, lines));
  return rehearsals;
}

std::string print_rehearsals(const Rehearsals& rehearsals) {
  std::string text =
      fmt::format("  {:<14} {:>7} {:>10} {:>9} {:>10} {:>8} {:>9} {:>6} {:>10}\n", "policy",
                  "steps", "total", "steps/s", "step", "changes", "paused", "lost", "time lost");
  text += rehearsal_line(rehearsals.decided, rehearsals.decided.policy);
  text += rehearsal_line(rehearsals.as_planned, "none");
  text += rehearsal_line(rehearsals.knowing_all, "knowing all");
  for (const control::Rehearsed* each :
       {&rehearsals.decided, &rehearsals.as_planned, &rehearsals.knowing_all})
    if (!each->stopped.empty())
      text += fmt::format("  {}: stopped, {}\n", each->policy, each->stopped);
  return text + decision_lines(rehearsals.decided.decisions);
}

void add_rehearsals(const Rehearsals& rehearsals, Json& object) {
  Json decided = rehearsed_to_json(rehearsals.decided);
  decided["adapt"] = rehearsals.adapt;
  decided["decisions"] = Json::array();
  for (const policy::Decision& decision : rehearsals.decided.decisions)
    decided["decisions"].push_back(decision_to_json(decision));
  object["under_policy"] = std::move(decided);
  object["as_planned"] = rehearsed_to_json(rehearsals.as_planned);
  object["knowing_all"] = rehearsed_to_json(rehearsals.knowing_all);
}

}  // namespace motley::cli
