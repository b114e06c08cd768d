#include "motley/cli/options/rehearsal_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/cli/options/batch_options.h"
#include "motley/cli/print/print_decisions.h"
#include "motley/control/rehearsal/best_batches.h"
#include "motley/control/training/batches.h"
#include "motley/control/training/replanning.h"
#include "motley/control/training/splits.h"
#include "motley/control/training/trials.h"
#include "peers/policies/policies.h"

namespace motley::cli {
namespace {

constexpr const char* kRehearsalGroup = "Policies";

std::string policy_of(const RehearsalOptions& options) {
  return options.policy.empty() ? "motley" : options.policy;
}

Result<std::shared_ptr<control::Adaptation>> make_adaptation(
    const RehearsalOptions& options, const control::RehearsalChoices& choices,
    const control::ChosenPlan& chosen, const control::Predicted& predicted,
    control::PlanChoices plan_choices, control::Listener& listener) {
  if (options.adapt == "split")
    return control::adapt_split(chosen, predicted, policy_of(options), peers::split_policies());
  if (options.adapt == "batch") {
    MOTLEY_ASSIGN(control::BatchChoices batch,
                  read_batch_choices(options.batch, policy_of(options)));
    batch.steps = static_cast<double>(choices.steps);
    batch.is_elastic = !choices.conditions.absences.empty();
    batch.samples = options.epoch_samples;
    return control::adapt_batch(chosen, batch);
  }
  MOTLEY_ASSIGN(auto found, control::find_trials(chosen, predicted));
  if (!found) {
    listener.note("no other plan is worth a trial");
    found = std::make_shared<control::Adaptation>();
    found->candidates.push_back(
        {control::describe_plan(chosen.planned.plan, chosen.inputs.cluster), chosen.planned});
  }
  if (!choices.conditions.absences.empty())
    found->replan = control::make_replanner(chosen, std::move(plan_choices));
  return found;
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

/// With adaptive batches: the progress of the training, in steps of the first batch.
std::string batch_line(const control::Rehearsed& rehearsed, const std::string& name) {
  return fmt::format("  {:<14} {:>7} {:>10} {:>10.1f} {:>10} {:>10.4g} {:>8} {:>9} {:>10}\n", name,
                     rehearsed.step_s.size(), rehearsed.samples, rehearsed.progress,
                     format_seconds(rehearsed.total), rehearsed.progress / rehearsed.total.value,
                     rehearsed.changes, format_seconds(rehearsed.paused), rehearsed.batch);
}

/// Relative excess of the policy's time over the known optimum; none: one of the two was stopped.
std::optional<double> over_bound(const Rehearsals& rehearsals) {
  const auto& bound = rehearsals.knowing_all;
  if (!bound || !bound->stopped.empty() || !rehearsals.decided.stopped.empty() ||
      bound->total.value <= 0)
    return std::nullopt;
  return rehearsals.decided.total / bound->total - 1;
}

std::string batch_table(const Rehearsals& rehearsals) {
  const control::Rehearsed &decided = rehearsals.decided, &still = rehearsals.as_planned;
  std::string text = fmt::format("  {:<14} {:>7} {:>10} {:>10} {:>10} {:>10} {:>8} {:>9} {:>10}\n",
                                 "policy", "steps", "samples", "progress", "total", "progress/s",
                                 "changes", "paused", "last batch");
  text += batch_line(decided, decided.policy) + batch_line(still, "none");
  if (rehearsals.knowing_all) text += batch_line(*rehearsals.knowing_all, "knowing all");
  const double gain = decided.progress / decided.total.value / (still.progress / still.total.value);
  if (const auto over = over_bound(rehearsals))
    text +=
        fmt::format("  {:.1f} % over the best batch at each moment, knowing all\n", 100 * *over);
  return text + fmt::format(
                    "  progress is in steps of the first batch: {:.3g} times as much a "
                    "second as without decisions\n",
                    gain);
}

Json rent_to_json(const std::optional<control::RehearsedRent>& rent) {
  if (!rent) return nullptr;
  return {{"policy", rent->policy},    {"paid", rent->paid}, {"spare_s", rent->spare.value},
          {"asked", rent->asked},      {"came", rent->came}, {"lost", rent->lost},
          {"returned", rent->returned}};
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
          {"samples", rehearsed.samples},
          {"last_batch", rehearsed.batch},
          {"progress", rehearsed.progress},
          {"rent", rent_to_json(rehearsed.rent)},
          {"stopped", rehearsed.stopped.empty() ? Json(nullptr) : Json(rehearsed.stopped)}};
}

}  // namespace

std::vector<Flag> rehearsal_flags(RehearsalOptions& o) {
  std::vector<Flag> flags = {
      {"--adapt", &o.adapt,
       "plan, split or batch: simulate --steps of a training that adapts as `run --adapt` does",
       Flag::Default::kHidden, kRehearsalGroup},
      {"--policy", &o.policy,
       "with --adapt split: motley (default), even, hetseq, adaptdl, lb-bsp or cannikin; with "
       "batch: motley, adaptdl, cannikin, simigrad or jabas",
       Flag::Default::kHidden, kRehearsalGroup},
      {"--noise-scale", &o.noise_scale,
       "with --adapt batch: gradient noise scale in samples, constant or over samples: "
       "0:200,20000:1500",
       Flag::Default::kHidden, kRehearsalGroup},
      {"--epoch-samples", &o.epoch_samples,
       "with --adapt batch: samples per epoch, at whose end policies other than motley decide",
       Flag::Default::kHidden, kRehearsalGroup},
      {"--decisions", &o.decisions, "with --adapt: decisions.jsonl to write",
       Flag::Default::kHidden, kRehearsalGroup},
      {"--change-steps", &o.change_steps, "with --adapt: steps between a decision and its change",
       kShown, kRehearsalGroup},
      {"--change-pause", &o.change_pause,
       "with --adapt: seconds that a change takes beside moving tensors", kShown, kRehearsalGroup}};
  for (Flag& flag : batch_flags(o.batch)) {
    flag.group = kRehearsalGroup;
    flags.push_back(std::move(flag));
  }
  for (Flag& flag : simulated_rent_flags(o.rent)) flags.push_back(std::move(flag));
  flags.push_back({"--absent", &o.absent,
                   "with --market: device whose machine is not rented yet (repeatable)"});
  flags.back().group = flags[flags.size() - 2].group;
  return flags;
}

Result<void> check_rent(const RehearsalOptions& options) {
  const bool splits = options.adapt == "split" || options.adapt == "batch";
  MOTLEY_ASSIGN(const auto rent, make_rent_choices(options.rent, Lives::kSimulated));
  if (!rent && options.absent.empty()) return {};
  if (!rent)
    return usage_error("cli.absent", "--absent: of machines that may be rented; give --market");
  if (!splits)
    return usage_error("cli.market",
                       "--market: rented machines go and come, and the batch is split again: add "
                       "--adapt split or batch");
  return {};
}

Result<void> check_batch(const RehearsalOptions& options) {
  if (options.adapt != "batch") {
    MOTLEY_RETURN_IF_ERROR(refuse_batch_flags(options.batch));
    if (options.noise_scale.empty() && options.epoch_samples == 0) return {};
    return usage_error("cli.batch", "--noise-scale and --epoch-samples go with --adapt batch");
  }
  if (options.noise_scale.empty())
    return usage_error("cli.noise-scale",
                       "--adapt batch: a simulation has no gradients; say their noise scale by "
                       "--noise-scale, as samples: a run logs what it is (decisions.jsonl)");
  MOTLEY_RETURN_IF_ERROR(control::parse_noise_course(options.noise_scale));
  if (options.epoch_samples < 0)
    return usage_error("cli.epoch-samples", "--epoch-samples: wanted a number above 0");
  const adapt::BatchPolicies known = peers::batch_policies();
  const bool is_known = std::any_of(known.begin(), known.end(),
                                    [&](const auto& each) { return each.name == options.policy; });
  if (is_known && options.policy != "motley" && options.epoch_samples == 0)
    return usage_error("cli.policy", "--policy " + options.policy +
                                         ": decides once a pass over the data; add "
                                         "--epoch-samples");
  return {};
}

Result<void> check_rehearsal(const RehearsalOptions& options, std::int64_t steps) {
  MOTLEY_RETURN_IF_ERROR(check_rent(options));
  if (options.adapt.empty()) {
    if (!options.policy.empty() || !options.decisions.empty())
      return usage_error(options.policy.empty() ? "cli.decisions" : "cli.policy",
                         fmt::format("{} goes with --adapt plan, split or batch",
                                     options.policy.empty() ? "--decisions" : "--policy"));
    return check_batch(options);
  }
  if (options.adapt != "plan" && options.adapt != "split" && options.adapt != "batch")
    return usage_error("cli.adapt",
                       "--adapt: found '" + options.adapt + "', wanted plan, split or batch");
  MOTLEY_RETURN_IF_ERROR(check_batch(options));
  if (options.adapt == "plan" && !options.policy.empty() && options.policy != "motley")
    return usage_error("cli.policy", "--policy goes with --adapt split or batch");
  if (steps < 1) return usage_error("cli.steps", "--steps: wanted a number above 0");
  if (options.change_steps < 0)
    return usage_error("cli.change", "--change-steps: wanted a number from 0 on");
  if (!(options.change_pause >= 0 && options.change_pause <= 1e9))
    return usage_error("cli.change", "--change-pause: wanted seconds from 0 to 1e9");
  return {};
}

Result<std::optional<control::RentRehearsal>> find_rent(const RehearsalOptions& options,
                                                        const control::ChosenPlan& chosen) {
  MOTLEY_ASSIGN(auto choices, make_rent_choices(options.rent, Lives::kSimulated));
  std::optional<control::RentRehearsal> rent;
  if (!choices) return rent;
  for (const std::string& name : options.absent)
    MOTLEY_RETURN_IF_ERROR(cluster::find_device(chosen.inputs.cluster, name));
  MOTLEY_ASSIGN(auto question, control::read_market_question(choices->market));
  MOTLEY_ASSIGN(auto machines, control::find_machines(question.market, chosen.inputs.cluster,
                                                      chosen.inputs.devices, options.absent));
  choices->speed = control::speed_by_prices(chosen, machines);
  rent = control::RentRehearsal{std::move(question), std::move(machines), std::move(*choices)};
  return rent;
}

control::RehearsalChoices without_renting(control::RehearsalChoices choices) {
  if (choices.rent) choices.rent->choices.rule = elastic::RentingRule::kNone;
  return choices;
}

Result<Rehearsals> rehearse_training(const RehearsalOptions& options,
                                     const control::ChosenPlan& chosen,
                                     const control::Predicted& predicted,
                                     control::RehearsalChoices choices,
                                     control::PlanChoices plan_choices,
                                     control::Listener& listener) {
  choices.change_steps = options.change_steps;
  choices.change_pause = Seconds(options.change_pause);
  MOTLEY_ASSIGN(const auto adaptation, make_adaptation(options, choices, chosen, predicted,
                                                       std::move(plan_choices), listener));
  Rehearsals rehearsals{.adapt = options.adapt};
  MOTLEY_ASSIGN(choices.rent, find_rent(options, chosen));
  if (options.adapt == "batch") {
    MOTLEY_ASSIGN(choices.noise, control::parse_noise_course(options.noise_scale));
  }
  control::SilentListener silent;
  MOTLEY_ASSIGN(rehearsals.as_planned, control::rehearse_as_planned(
                                           chosen, *adaptation, without_renting(choices), silent));
  if (options.adapt != "batch" && !choices.rent) {
    MOTLEY_ASSIGN(rehearsals.knowing_all,
                  control::rehearse_knowing_all(chosen, *adaptation, choices));
  }
  std::optional<control::BatchSpace> space;
  if (options.adapt == "batch" && chosen.priced.evaluator && !choices.rent)
    space = control::batch_space(*adaptation);
  MOTLEY_ASSIGN(rehearsals.decided,
                control::rehearse(chosen, std::move(*adaptation), choices, listener));
  if (space) {
    MOTLEY_ASSIGN(
        rehearsals.knowing_all,
        control::rehearse_best_batches(chosen, *space, choices, rehearsals.decided.progress));
  }
  if (options.decisions.empty()) return rehearsals;
  std::string lines;
  for (const policy::Decision& decision : rehearsals.decided.decisions)
    lines += policy::print_decision(decision) + "\n";
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(options.decisions, lines));
  return rehearsals;
}

std::string rent_table(const Rehearsals& rehearsals) {
  if (!rehearsals.decided.rent) return "";
  std::string text = fmt::format("  {:<14} {:>10} {:>14} {:>8} {:>6} {:>6} {:>10}\n", "rents",
                                 "paid", "to deadline", "asked", "came", "lost", "given back");
  for (const control::Rehearsed* each : {&rehearsals.decided, &rehearsals.as_planned}) {
    const control::RehearsedRent& rent = *each->rent;
    const std::string spare = elastic::print_duration(Seconds(std::abs(rent.spare.value)));
    text +=
        fmt::format("  {:<14} {:>10.4g} {:>14} {:>8} {:>6} {:>6} {:>10}\n", rent.policy, rent.paid,
                    !each->stopped.empty() ? "stopped"
                    : rent.spare.value < 0 ? spare + " late"
                                           : spare,
                    rent.asked, rent.came, rent.lost, rent.returned);
  }
  return text;
}

std::string print_rehearsals(const Rehearsals& rehearsals) {
  if (rehearsals.adapt == "batch")
    return batch_table(rehearsals) + rent_table(rehearsals) +
           decision_lines(rehearsals.decided.decisions);
  std::string text =
      fmt::format("  {:<14} {:>7} {:>10} {:>9} {:>10} {:>8} {:>9} {:>6} {:>10}\n", "policy",
                  "steps", "total", "steps/s", "step", "changes", "paused", "lost", "time lost");
  text += rehearsal_line(rehearsals.decided, rehearsals.decided.policy);
  text += rehearsal_line(rehearsals.as_planned, "none");
  if (rehearsals.knowing_all) text += rehearsal_line(*rehearsals.knowing_all, "knowing all");
  for (const control::Rehearsed* each :
       {&rehearsals.decided, &rehearsals.as_planned,
        rehearsals.knowing_all ? &*rehearsals.knowing_all : nullptr})
    if (each != nullptr && !each->stopped.empty())
      text += fmt::format("  {}: stopped, {}\n", each->policy, each->stopped);
  return text + rent_table(rehearsals) + decision_lines(rehearsals.decided.decisions);
}

void add_rehearsals(const Rehearsals& rehearsals, Json& object) {
  Json decided = rehearsed_to_json(rehearsals.decided);
  decided["adapt"] = rehearsals.adapt;
  const std::optional<double> over = over_bound(rehearsals);
  decided["over_bound"] = over ? Json(*over) : Json(nullptr);
  decided["decisions"] = Json::array();
  for (const policy::Decision& decision : rehearsals.decided.decisions)
    decided["decisions"].push_back(decision_to_json(decision));
  object["under_policy"] = std::move(decided);
  object["as_planned"] = rehearsed_to_json(rehearsals.as_planned);
  object["knowing_all"] =
      rehearsals.knowing_all ? rehearsed_to_json(*rehearsals.knowing_all) : Json(nullptr);
}

}  // namespace motley::cli
