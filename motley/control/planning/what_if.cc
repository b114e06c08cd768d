#include "motley/control/planning/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/parallel.h"
#include "motley/base/text.h"

namespace motley::control {
namespace {

/// Returns the names of excluded devices in the edited cluster.
std::vector<std::string> exclude_there(const std::vector<std::string>& exclude,
                                       const cluster::Cluster& before,
                                       const cluster::Edited& machines) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < machines.was.size(); ++i)
    if (machines.was[i] && std::find(exclude.begin(), exclude.end(),
                                     before.device(*machines.was[i]).name) != exclude.end())
      names.push_back(machines.cluster.devices[i].name);
  return names;
}

std::vector<std::string> names_before(const cluster::Cluster& before,
                                      const cluster::Edited& machines) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < machines.was.size(); ++i)
    names.push_back(machines.was[i] ? before.device(*machines.was[i]).name
                                    : machines.cluster.devices[i].name);
  return names;
}

Result<void> plan_it(const WhatIf& question, const Asked& asked, const Outside& outside,
                     Consequence& consequence) {
  Question there = asked.question;
  there.made = question.machines.cluster;
  there.global_batch = question.global_batch;
  there.exclude = exclude_there(asked.question.exclude, asked.cluster, question.machines);
  MOTLEY_ASSIGN(Inputs inputs, read_inputs(there, outside.listener));
  consequence.per_hour = cluster::price_per_hour(inputs.cluster, inputs.devices);
  MOTLEY_ASSIGN(Answer answer, find_plan(inputs, asked.choices, outside));
  consequence.modelled = answer.priced.costs->modelled;
  if (!answer.outcome.plan) return tl::make_unexpected(infeasible_error(answer.outcome));
  MOTLEY_ASSIGN(const auto predicted,
                if_known(foresee(inputs, *answer.outcome.plan, answer.priced), outside.listener));
  if (predicted) add_variation(*predicted, answer.outcome);
  consequence.outcome = std::move(answer.outcome);
  consequence.cluster = std::move(inputs.cluster);
  return {};
}

Consequence consider(const WhatIf& question, const Asked& asked, const Outside& outside) {
  Consequence consequence{.what = question.what,
                          .global_batch = question.global_batch,
                          .names = names_before(asked.cluster, question.machines)};
  const Seconds start = outside.clock.steady();
  if (const auto planned = plan_it(question, asked, outside, consequence); !planned) {
    consequence.is_infeasible = planned.error().kind == ErrorKind::kInfeasible;
    consequence.why_not = planned.error().message;
  }
  consequence.elapsed_s = (outside.clock.steady() - start).value;
  return consequence;
}

/// Reads and lowers the model once. If it cannot be read, each question says so.
Asked with_model(Asked asked) {
  if (auto model = graph::read_model(asked.question.model)) {
    asked.question.read = std::make_shared<const graph::Model>(*std::move(model));
    asked.question.programs = std::make_shared<search::EqualPrograms>();
  }
  return asked;
}

using Figure = std::optional<double> (Consequence::*)() const;

/// Sorts by `sign` times the figure, largest first, unknown last.
std::vector<std::size_t> order_by(const std::vector<Consequence>& consequences, Figure figure,
                                  double sign) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < consequences.size(); ++i) order.push_back(i);
  const auto rank = [&](std::size_t i) {
    const std::optional<double> value = (consequences[i].*figure)();
    return std::pair(!value, value ? -sign * *value : 0.0);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rank(a) < rank(b); });
  return order;
}

}  // namespace

std::optional<double> Consequence::samples_per_s() const {
  if (!is_feasible() || outcome.predicted_step.value <= 0) return std::nullopt;
  return static_cast<double>(global_batch) / outcome.predicted_step.value;
}

std::optional<double> Consequence::cost_per_sample() const {
  const std::optional<double> speed = samples_per_s();
  if (!speed || !per_hour) return std::nullopt;
  return *per_hour / 3600 / *speed;
}

Result<WhatIf> parse_what_if(const std::string& text, const Asked& asked) {
  const std::int64_t before = asked.question.global_batch;
  const std::string_view trimmed = trim(text);
  if (trimmed != "batch" && !trimmed.starts_with("batch ")) {
    MOTLEY_ASSIGN(cluster::Edited machines, cluster::edit_cluster(asked.cluster, trimmed));
    return WhatIf{std::string(trimmed), std::move(machines), before};
  }
  const std::string_view value = trim(trimmed.substr(5));
  std::optional<double> batch = find_float(value);
  if (value.starts_with('x') && (batch = find_float(value.substr(1))))
    batch = *batch * static_cast<double>(before);
  constexpr double kMost = 1e12;
  if (!batch || !(*batch >= 1 && *batch <= kMost) || *batch != std::floor(*batch))
    return usage_error("explain.batch",
                       fmt::format("'{}': found '{}', wanted samples a step such as 256, or x2; "
                                   "now {}",
                                   trimmed, value, before));
  return WhatIf{std::string(trimmed), cluster::edit_nothing(asked.cluster),
                static_cast<std::int64_t>(*batch)};
}

std::vector<Consequence> find_consequences(const std::vector<WhatIf>& questions, const Asked& as,
                                           const Outside& outside) {
  const Asked asked = with_model(as);
  std::vector<Consequence> found(questions.size());
  if (asked.choices.prices.missing == Missing::kMeasure) {
    for (std::size_t i = 0; i < found.size(); ++i)
      found[i] = consider(questions[i], asked, outside);
    return found;
  }
  run_in_parallel(found.size(), [&](std::size_t i) {
    SilentListener silent;
    found[i] = consider(questions[i], asked, {outside.workers, outside.clock, silent});
  });
  return found;
}

std::vector<std::size_t> order_by_speed(const std::vector<Consequence>& consequences) {
  return order_by(consequences, &Consequence::samples_per_s, 1);
}

std::vector<std::size_t> order_by_cost(const std::vector<Consequence>& consequences) {
  return order_by(consequences, &Consequence::cost_per_sample, -1);
}

}  // namespace motley::control
