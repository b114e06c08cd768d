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

}  // namespace

Controller::Controller(const ControllerOptions& options, Plans& plans, Surroundings& around)
    : options_(options),
      plans_(plans),
      around_(around),
      devices_(options.devices, options.absent),
      coordinator_(options.has_standbys) {}

void Controller::on_event(const run::WorkerEvent& event, Seconds now) {
  if (event.event == "leads") coordinator_.hear();
  if (options_.is_elastic) see_devices(event, now);
  if (event.event == "checkpoint")
    on_checkpoint(event.fields.value("path", ""), event.fields.value("step", std::int64_t{-1}));
  if (event.event != "change" && event.event != "refused") return;
  const int number = event.fields.value("change", 0);
  auto asked = requests_.take(number);
  if (!asked) return;
  if (event.event == "refused") return refuse(*asked, event.fields.value("why", ""));
  const std::int64_t step = event.fields.value("step", std::int64_t{0});
  asked->decision.begins = step;
  requests_.begin(number, *asked);
  settle_membership(step, Seconds(event.fields.value("pause_s", 0.0)), now);
  requests_.log(std::move(*asked));
}

void Controller::refuse(const Generations::Asked& asked, const std::string& why) {
  around_.note(fmt::format("{} cannot be had: {}", plans_.label(asked.plan), why));
  // New devices stay idle, and leaving devices stay, until devices change again.
  for (DeviceState& device : devices_.all()) device.awaits_plan = false;
  devices_.stay();
  requests_.observe(policy::RefusalSeen{asked.plan, generations().current(), why},
                    asked.decision.seen_step);
}

void Controller::on_checkpoint(const std::string& path, std::int64_t step) {
  recoveries_.on_checkpoint(path, step);
  coordinator_.renew();
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
  device.generation = generations().running();
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
  const std::set<std::string> used = plans_.devices(generations().current());
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
  if (coming_.is_empty()) return;
  coming_.step = step;
  const bool stood = !coming_.lost.empty() || coming_.lost_steps > 0;
  coming_.pause = stood ? now - members_.since() : pause;
  around_.note(fmt::format("step {}: {}", step, print_change(coming_)));
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
  std::optional<Order> order = requests_.next();
  if (order && std::holds_alternative<run::Change>(*order))
    note_told(std::get<run::Change>(*order));
  return order;
}

void Controller::note_told(const run::Change& change) {
  for (const int process : change.processes) devices_[process].was_told = true;
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
  for (int process = 0; generations().is_settled() && process < devices_.size(); ++process)
    if (std::exchange(devices_[process].awaits_generation, false))
      return Follow{process, generations().running()};
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
  auto change = recoveries_.recover(recovery_states,
                                    *may_lead ? std::nullopt : std::optional(cut_off()), coming_);
  if (change) {
    note_told(*change);
    return *std::move(change);
  }
  fault_ = change.error();
  for (const int process : devices_.living()) members_.kill(process);
  return members_.next(now);
}

DeviceTable::Named Controller::arrived() const {
  return devices_.where([](const DeviceState& each) { return each.awaits_plan; });
}

/// Plans with joined devices. Sends back those that no plan can use: they would block others.
void Controller::take_arrivals() {
  const DeviceTable::Named arrived = this->arrived();
  if (arrived.empty() || !generations().is_settled()) return;
  std::vector<std::string> names;
  std::vector<int> strangers;
  for (const auto& [device, process] : arrived) {
    names.push_back(device);
    if (!devices_[process].text) continue;
    around_.note(device + ": " + plans_.price(device));
    devices_[process].is_priced = true;
    strangers.push_back(process);
  }
  for (const std::string& device : names)
    requests_.observe(policy::ArrivalSeen{device, spent()}, steps_done());
  if (!generations().is_settled()) return;  // the policy has chosen a plan
  const auto plan = requests_.make(present());
  const bool is_idle = plan && *plan == generations().current();
  const auto asked = !plan     ? tl::make_unexpected(plan.error())
                     : is_idle ? Result<void>()
                               : ask(*plan, requests_.decide(*plan, "with " + join(names, ", ")));
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
  const auto plan = requests_.make(present());
  if (!plan) {
    devices_.stay(*process);
    return tl::make_unexpected(plan.error());
  }
  if (*plan == generations().current() && generations().is_settled()) {
    settle_membership(steps_done(), Seconds(0), now);
    return {};
  }
  const auto asked = ask(*plan, requests_.decide(*plan, device + " leaves"));
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
