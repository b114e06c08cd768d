#include "motley/job/membership.h"

#include <algorithm>
#include <utility>

#include "motley/base/json.h"

namespace motley::job {

Json membership_to_json(const std::vector<MembershipChange>& changes) {
  Json list = Json::array();
  for (const MembershipChange& each : changes)
    list.push_back({{"step", each.step},
                    {"lost", each.lost},
                    {"left", each.left},
                    {"joined", each.joined},
                    {"pause_s", each.pause.value},
                    {"lost_steps", each.lost_steps}});
  return list;
}

int Membership::add(const run::WorkerDevice& device) {
  const int process = devices_.add(device.name);
  orders_.push_back(AddDevice{process, device});
  return process;
}

bool Membership::start(int process) {
  if (!devices_.start(process)) return false;
  orders_.push_back(StartProcess{process});
  return true;
}

void Membership::dismiss(int process) {
  if (devices_.dismiss(process)) kill(process);
}

bool Membership::lose(int process, Seconds now) {
  const Life was = devices_.lose(process);
  if (was == Life::kDismissed) return true;
  const bool lived = was == Life::kWorking || was == Life::kLeaving;
  if (!lived) return has_begun_ || devices_[process].has_rejoined;
  // When some are done, others may be, too; the rest will say so.
  if (is_over_) return true;
  if (!has_begun_ || devices_.living().empty()) return false;
  halt(now);
  return true;
}

void Membership::take_over(int number, Seconds since, Seconds now) {
  has_begun_ = true;
  number_ = number;
  halt(now);
  since_ = since;
}

void Membership::halt(Seconds now) {
  if (phase_ == Phase::kTraining) since_ = now;
  phase_ = Phase::kHalting;
  told_ = now;
  ++number_;
  for (DeviceState& each : devices_.all()) {
    each.heard = each.is_killed = false;
    each.stands.reset();
  }
  std::erase_if(orders_, [](const Order& order) { return std::holds_alternative<Halt>(order); });
  orders_.push_back(Halt{number_});
}

void Membership::on_event(const run::WorkerEvent& event, Seconds now) {
  const int process = event.rank;
  if (process < 0 || process >= devices_.size()) return;
  DeviceState& device = devices_[process];
  if (event.event == "ready" && devices_.become_ready(process)) {
    const auto is_ready = [](const DeviceState& each) {
      return each.lives() || !each.has_process();
    };
    has_begun_ = has_begun_ || std::all_of(devices_.all().begin(), devices_.all().end(), is_ready);
    // It was not there when the others were told to halt, or could not answer yet.
    if (phase_ == Phase::kHalting) halt(now);
  }
  if (event.event == "step") has_begun_ = true;
  if (event.event == "carrying") device.carried = now;
  if (event.event == "done") {
    is_over_ = true;
    devices_.finish(process);
  }
  if (!device.lives()) return;
  if (event.event == "stalled" && phase_ != Phase::kHalting) halt(now);
  if (event.event == "refused" && phase_ == Phase::kRecovering) halt(now);
  if (event.event == "change" && phase_ == Phase::kRecovering) phase_ = Phase::kTraining;
  if (phase_ != Phase::kHalting || event.fields.value("halt", 0) != number_) return;
  if (event.event == "heard") device.heard = true;
  if (event.event != "halted") return;
  Json said = event.fields;
  for (const char* key : {"halt", "rank"}) said.erase(key);
  if (auto recovery_state = run::recovery_state_from_json(said, "halted"))
    device.stands = std::move(*recovery_state);
}

void Membership::kill_unheard(Seconds now) {
  for (const int process : devices_.living()) {
    DeviceState& device = devices_[process];
    if (device.stands) continue;
    const bool is_on_its_way = device.carried && now - *device.carried < kHearing;
    const bool hears = device.heard || is_on_its_way;
    if (now - told_ < (hears ? timeout_ + kHearing : kHearing)) continue;
    if (!std::exchange(device.is_killed, true)) kill(process);
  }
}

std::optional<Order> Membership::next(Seconds now) {
  if (phase_ == Phase::kHalting) kill_unheard(now);
  // A process that hangs while the others prepare is found by a halt.
  constexpr double kPreparing = 4;
  if (phase_ == Phase::kRecovering && now - told_ > kPreparing * timeout_) halt(now);
  if (orders_.empty()) return std::nullopt;
  Order order = std::move(orders_.front());
  orders_.erase(orders_.begin());
  return order;
}

std::optional<std::vector<run::RecoveryState>> Membership::still() const {
  const std::vector<int> living = devices_.living();
  if (phase_ != Phase::kHalting || living.empty()) return std::nullopt;
  std::vector<run::RecoveryState> all;
  for (const int process : living) {
    if (!devices_[process].stands) return std::nullopt;
    all.push_back(*devices_[process].stands);
  }
  return all;
}

void Membership::go_on(Seconds now) {
  phase_ = Phase::kRecovering;
  told_ = now;
}

}  // namespace motley::job
