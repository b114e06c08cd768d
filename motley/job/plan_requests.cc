#include "motley/job/plan_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/job/controller.h"

namespace motley::job {
namespace {

constexpr const char* kMembership = "membership";  // the name of decisions made without a policy

}  // namespace

PlanRequests::PlanRequests(const ControllerOptions& options, const DeviceTable& devices,
                           Plans& plans, Surroundings& around)
    : options_(options),
      devices_(devices),
      plans_(plans),
      around_(around),
      generations_(options.first_plan),
      counts_every_(options.counts_every),
      tells_counting_(options.counts_every > 1) {
  if (!options_.takeover) return;
  generations_.take_over(options_.takeover->plans);
  done_ = options_.takeover->done;
}

void PlanRequests::observe(const policy::Observation& seen, std::int64_t steps_done) {
  if (options_.policy != nullptr) take(options_.policy->observe(seen), steps_done);
}

void PlanRequests::take(std::vector<policy::Choice> choices, std::int64_t steps_done) {
  const std::string policy(options_.policy->name());
  for (policy::Choice& choice : choices) {
    const auto* tell = std::get_if<policy::Tell>(&choice.action);
    const auto* noise = std::get_if<policy::MeasureNoise>(&choice.action);
    if (tell == nullptr && noise == nullptr) {
      take_plan({.policy = policy,
                 .seen_step = steps_done,
                 .at = spent(),
                 .choice = std::move(choice),
                 .begins = steps_done});
      continue;
    }
    if (tell != nullptr) choice.why = tell->device + ": " + tell->text;
    if (noise != nullptr) {
      counts_every_ = noise->every;
      tells_counting_ = true;
      choice.why =
          (noise->every == 1 ? "noise is measured in every step: "
                             : fmt::format("noise is measured once in {} steps: ", noise->every)) +
          choice.why;
    }
    around_.note(fmt::format("step {}: {}", steps_done, choice.why));
    record({.policy = policy, .choice = std::move(choice)});
  }
}

/// Asks for the decided plan, or records that the current one continues.
void PlanRequests::take_plan(policy::Decision decision) {
  const std::int64_t steps_done = decision.seen_step;
  const auto plan = plans_.find(decision.choice.action);
  if (!plan) {
    around_.note("not possible: " + plan.error().message);
    observe(policy::RefusalSeen{-1, generations_.current(), plan.error().message}, steps_done);
    return;
  }
  if (*plan != generations_.current() || !generations_.is_settled()) {
    (void)ask(*plan, std::move(decision));
    return;
  }
  decision.choice.why = plans_.label(*plan) + ": " + decision.choice.why;
  around_.note(fmt::format("step {}: goes on, {}", steps_done, decision.choice.why));
  around_.log_plan(std::move(decision), *plan, Surroundings::Begins::kBefore);
}

Result<void> PlanRequests::ask(int plan, policy::Decision decision) {
  // Starts from the plan that then runs: the last one requested, or else the current one.
  Result<run::Change> change =
      may_begin(plan)
          ? plans_.make_change({.to = plan, .from = generations_.last_plan(), .there = there()})
          : runtime_error("adapt.absent", plans_.label(plan) +
                                              ": some of its devices are not there, or too few "
                                              "have the model");
  if (!change) {
    around_.note("warning: " + change.error().message);
    observe(policy::RefusalSeen{plan, generations_.current(), change.error().message},
            decision.seen_step);
    return tl::make_unexpected(change.error());
  }
  if (options_.is_elastic) change->processes = devices_.living();
  change->after = generations_.last();
  change->number = generations_.ask(plan, std::move(decision));
  ready_.push_back(std::move(*change));
  return {};
}

void PlanRequests::record(policy::Decision decision) {
  decision.seen_step = decision.begins = done_;
  decision.at = spent();
  around_.log_decision(std::move(decision));
}

policy::Decision PlanRequests::decide(int plan, std::string why) const {
  return {.policy = kMembership,
          .seen_step = done_,
          .at = spent(),
          .choice = {policy::UsePlan{plan}, plans_.priced(plan), std::move(why)}};
}

void PlanRequests::on_step(std::int64_t step, Seconds took) {
  spent_ += took.value;
  done_ = step + 1;
}

std::optional<std::set<std::string>> PlanRequests::there() const {
  if (!options_.is_elastic) return std::nullopt;
  std::set<std::string> names;
  for (const int process : devices_.living()) names.insert(devices_[process].name);
  return names;
}

bool PlanRequests::may_begin(int plan) const {
  if (!options_.is_elastic || devices_.living().empty()) return true;  // not begun
  const std::vector<std::string> devices = devices_.staying();
  if (!plans_.outlives_losses(plan, devices.size())) return false;
  const std::set<std::string> used = plans_.devices(plan);
  return std::all_of(used.begin(), used.end(), [&](const std::string& device) {
    return std::find(devices.begin(), devices.end(), device) != devices.end();
  });
}

std::optional<int> PlanRequests::plan_without(const std::vector<std::string>& lost) {
  if (options_.policy == nullptr) return std::nullopt;
  std::optional<int> wanted;
  for (const std::string& device : lost)
    for (const policy::Choice& choice : options_.policy->observe(policy::LossSeen{device, spent()}))
      if (auto found = plans_.find(choice.action)) wanted = *found;
  return wanted && may_begin(*wanted) ? wanted : std::nullopt;
}

Result<int> PlanRequests::make(const std::vector<std::string>& devices) {
  if (devices.empty())
    return runtime_error("run.nobody-left", "no device of the training is there any more");
  return plans_.make(devices, generations_.running_plan());
}

void PlanRequests::begin(int number, Generations::Asked& asked) {
  policy::Decision& decision = asked.decision;
  decision.choice.why = plans_.label(asked.plan) + ": " + decision.choice.why;
  around_.note(fmt::format("step {}: {}", decision.begins, decision.choice.why));
  generations_.begin(number, asked.plan);
}

void PlanRequests::log(Generations::Asked asked) {
  around_.log_plan(std::move(asked.decision), asked.plan, Surroundings::Begins::kNow);
}

void PlanRequests::fall_back(int generation) {
  generations_.fall_back(generation);
  ready_.clear();
}

std::optional<Order> PlanRequests::next() {
  if (std::exchange(tells_counting_, false)) return CountEvery{counts_every_};
  if (ready_.empty()) return std::nullopt;
  run::Change change = std::move(ready_.front());
  ready_.pop_front();
  return change;
}

}  // namespace motley::job
