#include "motley/job/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::job {
namespace {

constexpr const char* kMembership = "membership";  // the name of decisions made without a policy

/// Is this an error of one process that the others may survive: a machine's fault, not training's?
bool is_of_a_device(const Error& error) {
  static constexpr std::array<std::string_view, 12> kCodes = {
      "run.worker-lost", "run.host-lost", "run.peer-lost",  "run.timeout",
      "run.closed",      "run.halted",    "run.stopped",    "run.out-of-memory",
      "run.unsettled",   "run.change",    "run.rendezvous", "run.shared-memory"};
  return std::find(kCodes.begin(), kCodes.end(), error.code) != kCodes.end();
}

/// Too few hosts follow this coordinator.
Error cut_off() {
  return {ErrorKind::kInfeasible, "elastic.minority",
          "not more than half of the job's hosts answer: the others may train on without these"};
}

std::string describe_change(const MembershipChange& change) {
  std::vector<std::string> words;
  const auto say = [&](const std::vector<std::string>& devices, const char* what) {
    if (!devices.empty()) words.push_back(join(devices, ", ") + " " + what);
  };
  say(change.lost, "lost");
  say(change.left, "left");
  say(change.joined, "joined");
  if (words.empty()) words.emplace_back("some did not get on, and all are there");
  return fmt::format("{}; went on after {}{}", join(words, ", "), format_seconds(change.pause),
                     change.lost_steps == 0 ? ""
                     : change.lost_steps == 1
                         ? ", a step was done again"
                         : fmt::format(", {} steps are done again", change.lost_steps));
}

}  // namespace

Controller::Controller(const ControllerOptions& options, Plans& plans, Surroundings& around)
    : options_(options),
      plans_(plans),
      around_(around),
      devices_(options.devices, options.absent),
      generations_(options.first_plan),
      coordinator_(options.has_standbys),
      counts_every_(options.counts_every),
      tells_counting_(options.counts_every > 1) {
  if (!options_.takeover) return;
  generations_.take_over(options_.takeover->plans);
  done_ = options_.takeover->done;
}

void Controller::observe(const policy::Observation& seen, std::int64_t steps_done) {
  if (options_.policy != nullptr) take(options_.policy->observe(seen), steps_done);
}

void Controller::take(std::vector<policy::Choice> choices, std::int64_t steps_done) {
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
void Controller::take_plan(policy::Decision decision) {
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

Result<void> Controller::ask(int plan, policy::Decision decision) {
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

void Controller::record(policy::Decision decision) {
  decision.seen_step = decision.begins = done_;
  decision.at = spent();
  around_.log_decision(std::move(decision));
}

policy::Decision Controller::decide(int plan, std::string why) const {
  return {.policy = kMembership,
          .seen_step = done_,
          .at = spent(),
          .choice = {policy::UsePlan{plan}, plans_.priced(plan), std::move(why)}};
}

void Controller::on_step(std::int64_t step, Seconds took) {
  spent_ += took.value;
  done_ = step + 1;
}

void Controller::on_event(const run::WorkerEvent& event, Seconds now) {
  if (event.event == "leads") coordinator_.hear();
  if (options_.is_elastic) see_devices(event, now);
  if (event.event == "checkpoint")
    on_checkpoint(event.fields.value("path", ""), event.fields.value("step", std::int64_t{-1}));
  if (event.event != "change" && event.event != "refused") return;
  const int number = event.fields.value("change", 0);
  auto asked = generations_.take(number);
  if (!asked) return;
  if (event.event == "refused") return refuse(*asked, event.fields.value("why", ""));
  policy::Decision& decision = asked->decision;
  decision.begins = event.fields.value("step", std::int64_t{0});
  decision.choice.why = plans_.label(asked->plan) + ": " + decision.choice.why;
  around_.note(fmt::format("step {}: {}", decision.begins, decision.choice.why));
  generations_.begin(number, asked->plan);
  settle_membership(decision.begins, Seconds(event.fields.value("pause_s", 0.0)), now);
  around_.log_plan(std::move(decision), asked->plan, Surroundings::Begins::kNow);
}

void Controller::refuse(const Generations::Asked& asked, const std::string& why) {
  around_.note(fmt::format("{} cannot be had: {}", plans_.label(asked.plan), why));
  // New devices stay idle, and leaving devices stay, until devices change again.
  for (DeviceState& device : devices_.all()) device.awaits_plan = false;
  devices_.stay();
  observe(policy::RefusalSeen{asked.plan, generations_.current(), why}, asked.decision.seen_step);
}

void Controller::on_checkpoint(const std::string& path, std::int64_t step) {
  saved_.saved_path = path;
  saved_.saved_step = step;
  coordinator_.renew();
}

std::int64_t Controller::saved_step() const {
  return std::max(saved_.saved_step, options_.takeover ? options_.takeover->saved_step : -1);
}

void Controller::see_devices(const run::WorkerEvent& event, Seconds now) {
  if (event.rank < 0 || event.rank >= devices_.size()) return;  // of the launcher
  DeviceState& device = devices_[event.rank];
  const bool was_there = device.lives();
  members_.on_event(event, now);
  if (event.event == "refused")
    for (const auto& [name, process] : arrived())
      devices_[process].why = {ErrorKind::kRuntime, "run.change", event.fields.value("why", "")};
  // Joined too late for any plan, so nobody tells it that training is over.
  if (members_.is_over())
    for (const int process : devices_.living())
      if (devices_[process].has_rejoined && !devices_[process].was_told) members_.dismiss(process);
  if (members_.is_over()) return;
  if (event.event != "ready" || was_there || !device.lives() || !device.has_rejoined) return;
  device.generation = generations_.running();
  device.awaits_plan = device.awaits_generation = true;
}

bool Controller::on_loss(int process, const Error& error, Seconds now) {
  if (!options_.is_elastic) return false;
  DeviceState& device = devices_[process];
  const bool lived = device.lives(), was_joining = device.life == Life::kJoining;
  if (lived && !is_of_a_device(error)) return false;
  if (!members_.lose(process, now)) return false;
  if (was_joining) {
    device.why = error;
    around_.note(fmt::format("{} did not come: {}", device.name, error.message));
  }
  if (!lived) return true;
  coming_.lost.push_back(device.name);
  around_.note(fmt::format("{} is lost: {}", device.name, error.message));
  return true;
}

/// Settles which devices left and joined when a plan begins after step `step`.
void Controller::settle_membership(std::int64_t step, Seconds pause, Seconds now) {
  if (!options_.is_elastic) return;
  const std::set<std::string> used = plans_.devices(generations_.current());
  for (const auto& [device, process] : devices_.where([&](const DeviceState& each) {
         return each.life == Life::kLeaving && !used.contains(each.name);
       })) {
    coming_.left.push_back(device);
    // To the policy it is lost, however it went.
    if (options_.policy != nullptr)
      (void)options_.policy->observe(policy::LossSeen{device, spent()});
    members_.dismiss(process);
  }
  for (const auto& [name, process] :
       devices_.where([&](const DeviceState& each) { return used.contains(each.name); })) {
    DeviceState& device = devices_[process];
    if (std::exchange(device.awaits_plan, false)) coming_.joined.push_back(name);
    device.why.reset();
    know_joiner(device);
  }
  const bool is_empty = coming_.lost.empty() && coming_.left.empty() && coming_.joined.empty() &&
                        coming_.lost_steps == 0;
  if (is_empty) return;
  coming_.step = step;
  const bool stood = !coming_.lost.empty() || coming_.lost_steps > 0;
  coming_.pause = stood ? now - members_.since() : pause;
  around_.note(fmt::format("step {}: {}", step, describe_change(coming_)));
  membership_.push_back(std::exchange(coming_, {}));
}

/// The device takes part, so it joins the cluster, also for runs that continue this one.
void Controller::know_joiner(DeviceState& device) {
  if (const auto text = std::exchange(device.text, std::nullopt)) around_.keep_joiner(*text);
}

std::optional<Order> Controller::next(Seconds now) {
  if (auto held = coordinator_.take_held()) return held;
  return coordinator_.first(find_order(now));
}

std::optional<Order> Controller::find_order(Seconds now) {
  if (options_.is_elastic) {
    if (auto order = next_of_devices(now)) return order;
    if (!members_.is_training()) return std::nullopt;
  }
  if (std::exchange(tells_counting_, false)) return CountEvery{counts_every_};
  if (ready_.empty()) return std::nullopt;
  run::Change change = std::move(ready_.front());
  ready_.pop_front();
  return give(std::move(change));
}

run::Change Controller::give(run::Change change) {
  for (const int process : change.processes) devices_[process].was_told = true;
  return change;
}

/// Handles devices that join, leave or stand still.
std::optional<Order> Controller::next_of_devices(Seconds now) {
  if (options_.takeover && !std::exchange(leads_on_, true)) lead_on(now);
  // A device that was taken away may not have ended yet.
  for (const auto& [device, process] :
       devices_.where([](const DeviceState& each) { return each.returns; }))
    devices_[process].returns = !members_.start(process);
  if (auto order = members_.next(now)) return order;
  if (const auto recovery_states = members_.still()) return go_on_after_halt(*recovery_states, now);
  coordinator_.forget();
  if (!members_.is_training()) return std::nullopt;
  for (int process = 0; generations_.is_settled() && process < devices_.size(); ++process)
    if (std::exchange(devices_[process].awaits_generation, false))
      return Follow{process, generations_.running()};
  take_arrivals();
  return std::nullopt;
}

/// Takes the lead. Devices that were lost with the former coordinator count as lost.
void Controller::lead_on(Seconds now) {
  const Takeover& taken = *options_.takeover;
  members_.take_over(taken.halts, now - taken.alone, now);
  for (const std::string& device : taken.living)
    if (!devices_.lives(device)) coming_.lost.push_back(device);
  around_.note(fmt::format("this host leads on: {} lost", join(coming_.lost, ", ")));
}

/// Continues after a halt, once enough hosts follow this process, or ends the job.
std::optional<Order> Controller::go_on_after_halt(
    const std::vector<run::RecoveryState>& recovery_states, Seconds now) {
  const std::optional<bool> may_lead = coordinator_.may_lead(now);
  if (coordinator_.asks()) return Leave{};
  if (!may_lead) return std::nullopt;
  coordinator_.forget();
  members_.go_on(now);
  auto change = recover(recovery_states, *may_lead);
  if (change) return give(std::move(*change));
  fault_ = change.error();
  for (const int process : devices_.living()) members_.kill(process);
  return members_.next(now);
}

/// Finds the plan and the point to continue from while all stand still.
Result<run::Change> Controller::recover(const std::vector<run::RecoveryState>& recovery_states,
                                        bool may_lead) {
  auto found = run::find_recovery(recovery_states);
  run::Recovery recovery = found ? std::move(*found) : fall_back(found.error(), done_);
  MOTLEY_RETURN_IF_ERROR(check_way_back(recovery));
  if (recovery.from.empty()) {  // of the latest checkpoint, the copy on this host counts
    recovery.point.saved_path = saved_.saved_path;
    recovery.point.saved_step = saved_.saved_step;
    recovery.point.saved_host.clear();
  }
  // The change in which they halted may have begun unreported.
  generations_.fall_back(recovery.generation);
  ready_.clear();
  const int from = generations_.running_plan();
  const bool was_undone = std::any_of(
      recovery_states.begin(), recovery_states.end(), [&](const run::RecoveryState& each) {
        return each.is_open && each.generation == recovery.generation &&
               each.point.step == recovery.point.step;
      });
  coming_.lost_steps += was_undone ? 1 : 0;
  if (!may_lead) return give_up(std::move(recovery), from, cut_off());
  const std::optional<int> wanted = plan_of_policy();
  const bool may_stay = coming_.lost.empty() && may_begin(from);
  const Result<int> to = wanted     ? Result<int>(*wanted)
                         : may_stay ? Result<int>(from)
                                    : plan_for(present());
  if (!to) return give_up(std::move(recovery), from, to.error());
  auto change = recover_from(recovery, from, *to);
  const bool is_small = !change && change.error().kind == ErrorKind::kInfeasible;
  return is_small ? give_up(std::move(recovery), from, change.error()) : change;
}

/// Continues from the processes' state, or, if that is incomplete, from the last checkpoint.
Result<run::Change> Controller::recover_from(run::Recovery recovery, int from, int to) {
  std::set<std::string> empty;  // joined since, and hold nothing
  for (const DeviceState& each : devices_.all())
    if (each.generation >= recovery.generation) empty.insert(each.name);
  Result<run::Change> change;
  if (recovery.from.empty()) {
    change = plans_.make_change({.to = to, .from = from, .there = there(), .empty = empty});
    if (!change && change.error().code == "synth.move-lost") {
      const bool stops = recovery.stops;
      recovery = fall_back(change.error(), std::max(recovery.point.step, done_));
      recovery.stops = stops;
      MOTLEY_RETURN_IF_ERROR(check_way_back(recovery));
    }
  }
  if (!recovery.from.empty()) change = plans_.make_change({.to = to});
  MOTLEY_RETURN_IF_ERROR(change);
  change->processes = devices_.living();
  change->after = recovery.generation;
  policy::Decision decision = decide(
      to, coming_.lost.empty() ? "devices did not get on" : "without " + join(coming_.lost, ", "));
  decision.seen_step = decision.begins = recovery.point.step;
  change->recovery = std::move(recovery);
  change->number = generations_.ask(to, std::move(decision));
  return change;
}

/// Saves the state and stops: the remaining devices are too few or too small.
Result<run::Change> Controller::give_up(run::Recovery recovery, int from, const Error& why) {
  const std::vector<std::string> devices = present();
  if (devices.empty()) return tl::make_unexpected(why);
  around_.note("stopping, as those that are left cannot go on: " + why.message);
  MOTLEY_ASSIGN(const int alone, plans_.make_saving(devices.front(), from));
  recovery.stops = true;
  return recover_from(std::move(recovery), from, alone);
}

/// Falls back to the last checkpoint, because state is missing. Loses the steps since, of `done`.
run::Recovery Controller::fall_back(const Error& why, std::int64_t done) {
  if (saved_.saved_path.empty()) {
    auto brought = around_.bring_checkpoint();
    if (brought) saved_.saved_path = *brought;
    if (!brought) around_.note("warning: " + brought.error().message);
  }
  run::Recovery recovery = around_.open_checkpoint(saved_.saved_path);
  recovery.generation = generations_.running();
  coming_.lost_steps += std::max<std::int64_t>(0, done - recovery.point.step);
  done_ = recovery.point.step;
  around_.note(fmt::format("{}; training goes on {}", why.message,
                           recovery.from == "new" ? "from the beginning: there is no checkpoint"
                                                  : "from " + recovery.from));
  return recovery;
}

/// A taken-over training does not begin anew if the former coordinator had a checkpoint of it.
Result<void> Controller::check_way_back(const run::Recovery& recovery) const {
  if (!options_.takeover || recovery.from != "new" || options_.takeover->saved_step < 0) return {};
  return runtime_error(
      "elastic.checkpoint",
      fmt::format(
          "what is left of the model is not all of it, and no host that is left has the "
          "checkpoint of step {}: run the same command on the host that led when it is back",
          options_.takeover->saved_step));
}

std::vector<std::string> Controller::present() const {
  std::vector<std::string> names;
  for (const DeviceState& each : devices_.all())
    if (each.stays()) names.push_back(each.name);
  return names;
}

std::optional<std::set<std::string>> Controller::there() const {
  if (!options_.is_elastic) return std::nullopt;
  std::set<std::string> names;
  for (const int process : devices_.living()) names.insert(devices_[process].name);
  return names;
}

bool Controller::may_begin(int plan) const {
  if (!options_.is_elastic || devices_.living().empty()) return true;  // not begun
  const std::vector<std::string> devices = present();
  if (!plans_.outlives_losses(plan, devices.size())) return false;
  const std::set<std::string> used = plans_.devices(plan);
  return std::all_of(used.begin(), used.end(), [&](const std::string& device) {
    return std::find(devices.begin(), devices.end(), device) != devices.end();
  });
}

Result<int> Controller::plan_for(const std::vector<std::string>& devices) {
  if (devices.empty())
    return runtime_error("run.nobody-left", "no device of the training is there any more");
  return plans_.make(devices, generations_.running_plan());
}

std::optional<int> Controller::plan_of_policy() {
  if (options_.policy == nullptr) return std::nullopt;
  std::optional<int> wanted;
  for (const std::string& device : coming_.lost)
    for (const policy::Choice& choice : options_.policy->observe(policy::LossSeen{device, spent()}))
      if (auto found = plans_.find(choice.action)) wanted = *found;
  return wanted && may_begin(*wanted) ? wanted : std::nullopt;
}

DeviceTable::Named Controller::arrived() const {
  return devices_.where([](const DeviceState& each) { return each.awaits_plan; });
}

/// Plans with joined devices. Sends back those that no plan can use: they would block others.
void Controller::take_arrivals() {
  const DeviceTable::Named arrived = this->arrived();
  if (arrived.empty() || !generations_.is_settled()) return;
  std::vector<std::string> names;
  std::vector<int> strangers;
  for (const auto& [device, process] : arrived) {
    names.push_back(device);
    if (!devices_[process].text) continue;
    around_.note(device + ": " + plans_.price(device));
    devices_[process].is_priced = true;
    strangers.push_back(process);
  }
  for (const std::string& device : names) observe(policy::ArrivalSeen{device, spent()}, done_);
  if (!generations_.is_settled()) return;  // the policy has chosen a plan
  const auto plan = plan_for(present());
  const bool is_idle = plan && *plan == generations_.current();
  const auto asked = !plan     ? tl::make_unexpected(plan.error())
                     : is_idle ? Result<void>()
                               : ask(*plan, decide(*plan, "with " + join(names, ", ")));
  if (asked && !is_idle) return;
  const Error why = asked
                        ? Error{ErrorKind::kRuntime, "elastic.idle", "the plan is quicker without"}
                        : asked.error();
  if (is_idle || !plan)  // otherwise it was noted
    around_.note(join(names, ", ") + " is idle: " + why.message);
  for (const auto& [device, process] : arrived) {
    devices_[process].awaits_plan = false;
    devices_[process].why = why;
    if (is_idle) know_joiner(devices_[process]);
  }
  for (const int process : strangers) {
    if (is_idle) continue;
    devices_[process].is_priced = false;
    members_.dismiss(process);
    around_.note(devices_[process].name + " is sent back, as no plan is possible with it");
  }
  if (!strangers.empty()) around_.look_ahead();
}

Result<void> Controller::release(const std::string& device, Seconds now) {
  const auto process = options_.is_elastic ? devices_.find(device) : std::nullopt;
  if (!process || !devices_[*process].lives())
    return usage_error("elastic.absent", device + ": no such device trains here now");
  if (devices_[*process].life == Life::kLeaving) return {};
  devices_.leave(*process);
  const auto plan = plan_for(present());
  if (!plan) {
    devices_.stay(*process);
    return tl::make_unexpected(plan.error());
  }
  if (*plan == generations_.current() && generations_.is_settled()) {
    settle_membership(done_, Seconds(0), now);
    return {};
  }
  const auto asked = ask(*plan, decide(*plan, device + " leaves"));
  if (!asked) devices_.stay(*process);
  return asked;
}

Result<void> Controller::take_in(const std::string& device) {
  const auto process = options_.is_elastic ? devices_.find(device) : std::nullopt;
  if (!process)
    return usage_error("elastic.unknown", device + ": the run's cluster has no such device");
  if (members_.is_over()) return usage_error("elastic.over", "the training is over");
  if (!members_.start(*process))
    return usage_error("elastic.present", device + ": it takes part already");
  devices_[*process].why.reset();
  return {};
}

Result<void> Controller::check_joiner(const std::string& device) const {
  if (members_.is_over()) return usage_error("elastic.over", "the training is over");
  const auto known = devices_.find(device);
  if (known && !devices_[*known].text)
    return usage_error("elastic.taken",
                       device + ": the run has a device of that name; give another by --name");
  if (known && devices_[*known].has_process())
    return usage_error("elastic.present", device + ": it is coming already");
  return {};
}

int Controller::add(const run::WorkerDevice& device, const std::string& text) {
  const int process = members_.add(device);
  devices_[process].text = text;
  devices_[process].is_priced = false;
  devices_[process].why.reset();
  return process;
}

void Controller::take_away(const std::string& device) {
  if (const auto process = devices_.find(device)) members_.kill(*process);
}

void Controller::bring_back(const std::string& device) {
  if (const auto process = devices_.find(device)) devices_[*process].returns = true;
}

}  // namespace motley::job
