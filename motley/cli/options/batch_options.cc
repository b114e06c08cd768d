#include "motley/cli/options/batch_options.h"

#include <fmt/format.h>

#include <string_view>
#include <vector>

#include "motley/base/text.h"
#include "peers/policies/policies.h"

namespace motley::cli {
namespace {

constexpr std::string_view kDeadline = "deadline:";

tl::unexpected<Error> limits_fault(const std::string& text) {
  return usage_error("cli.batch-limits", "--batch-limits: found '" + text +
                                             "', wanted the least and the most samples a step as "
                                             "MIN:MAX, 1 or more");
}

Result<void> read_limits(const std::string& text, control::BatchChoices& choices) {
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() != 2) return limits_fault(text);
  const auto least = find_integer(parts[0]), most = find_integer(parts[1]);
  if (!least || !most || *least < 1 || *most < *least) return limits_fault(text);
  choices.least = *least;
  choices.most = *most;
  return {};
}

Result<adapt::Objective> read_objective(const std::string& text) {
  if (text == "time") return adapt::Objective{adapt::ObjectiveKind::kTime, Seconds(0)};
  if (text == "cost") return adapt::Objective{adapt::ObjectiveKind::kCost, Seconds(0)};
  if (text.starts_with(kDeadline)) {
    const auto left = parse_seconds(text.substr(kDeadline.size()));
    if (left && left->value > 0) return adapt::Objective{adapt::ObjectiveKind::kDeadline, *left};
  }
  return usage_error("cli.objective", "--objective: found '" + text +
                                          "', wanted time, cost or deadline:DURATION "
                                          "(deadline:2h)");
}

}  // namespace

std::vector<Flag> batch_flags(BatchOptions& options) {
  return {{"--batch-limits", &options.limits,
           "with --adapt batch: least and most samples per step, MIN:MAX (default: the first batch "
           "to 16 times that)"},
          {"--batch-rule", &options.rule,
           "with --adapt batch: scaling rule of learning rates: adascale (default of sgd), sqrt "
           "(default of others), linear or none"},
          {"--objective", &options.objective,
           "with --adapt batch: minimise time (default), cost, or cost under deadline:DURATION"}};
}

Result<control::BatchChoices> read_batch_choices(const BatchOptions& options,
                                                 const std::string& policy) {
  control::BatchChoices choices;
  choices.policy = policy;
  choices.policies = peers::batch_policies();
  if (!options.limits.empty()) MOTLEY_RETURN_IF_ERROR(read_limits(options.limits, choices));
  if (!options.rule.empty()) {
    MOTLEY_ASSIGN(choices.rule, adapt::parse_rule(options.rule, "--batch-rule"));
  }
  if (!options.objective.empty()) {
    MOTLEY_ASSIGN(choices.objective, read_objective(options.objective));
  }
  return choices;
}

Result<control::BatchChoices> make_batch_choices(const RunOptions& options,
                                                 const control::ChosenPlan& chosen,
                                                 const control::TrainChoices& training) {
  MOTLEY_ASSIGN(control::BatchChoices choices, read_batch_choices(options.batch, options.policy));
  data::DataSource source = training.data;
  MOTLEY_ASSIGN(choices.samples, control::check_trainable(chosen.inputs, training.shuffle, source));
  choices.steps = training.epochs > 0 ? training.epochs * static_cast<double>(choices.samples) /
                                            static_cast<double>(chosen.inputs.global_batch)
                                      : static_cast<double>(training.steps);
  if (choices.policy != "motley" && choices.samples < 0)
    return usage_error("cli.policy", "--policy " + choices.policy +
                                         ": decides once a pass over the data, and " +
                                         training.data.path + " is a stream");
  return choices;
}

Result<void> refuse_batch_flags(const BatchOptions& options) {
  if (options == BatchOptions()) return {};
  return usage_error("cli.batch",
                     "--batch-limits, --batch-rule and --objective go with --adapt batch");
}

}  // namespace motley::cli
