#include "motley/control/membership.h"

#include <algorithm>
#include <utility>

#include "motley/base/json.h"

namespace motley::control {

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

Membership::Membership(std::vector<std::string> devices, const std::vector<std::string>& absent,
                       Seconds timeout)
    : devices_(std::move(devices)), timeout_(timeout) {
  for (std::size_t process = 0; process < devices_.size(); ++process)
    if (std::count(absent.begin(), absent.end(), devices_[process]) == 0)
      started_.insert(static_cast<int>(process));
}

std::vector<int> Membership::living() const { return {living_.begin(), living_.end()}; }

std::optional<int> Membership::find(const std::string& device) const {
  const auto found = std::find(devices_.begin(), devices_.end(), device);
  if (found == devices_.end()) return std::nullopt;
  return static_cast<int>(found - devices_.begin());
}

int Membership::add(const run::WorkerDevice& device) {
  const int process = find(device.name).value_or(static_cast<int>(devices_.size()));
  devices_.resize(std::max(devices_.size(), static_cast<std::size_t>(process) + 1));
  devices_[static_cast<std::size_t>(process)] = device.name;
  orders_.push_back(AddDevice{process, device});
  return process;
}

bool Membership::start(int process) {
  if (!started_.insert(process).second) return false;
  come_.insert(process);
  orders_.push_back(StartProcess{process});
  return true;
}

void Membership::dismiss(int process) {
  if (!started_.contains(process)) return;
  dismissed_.insert(process);
  living_.erase(process);  // nobody is to wait for it
  kill(process);
}

bool Membership::lose(int process, Seconds now) {
  started_.erase(process);
  const bool lived = living_.erase(process) > 0;
  if (dismissed_.erase(process) > 0) return true;
  if (!lived) return has_begun_ || come_.contains(process);  // one that was coming
  // Where some are through, others may be as well; who is not will say so.
  if (!ended_.empty()) return true;
  if (!has_begun_ || living_.empty()) return false;
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
  heard_.clear();
  killed_.clear();
  standings_.clear();
  std::erase_if(orders_, [](const Order& order) { return std::holds_alternative<Halt>(order); });
  orders_.push_back(Halt{number_});
}

void Membership::on_event(const run::WorkerEvent& event, Seconds now) {
  const int process = event.rank;
  if (event.event == "ready" && started_.contains(process) && !dismissed_.contains(process)) {
    const bool has_just_come = living_.insert(process).second;
    has_begun_ = has_begun_ || living_.size() == started_.size();
    // It was not there when the others were told, or could not answer yet.
    if (has_just_come && phase_ == Phase::kHalting) halt(now);
  }
  if (event.event == "step") has_begun_ = true;
  if (event.event == "carrying") carrying_[process] = now;
  if (event.event == "done") {
    ended_.insert(process);
    living_.erase(process);
  }
  if (!living_.contains(process)) return;
  if (event.event == "stalled" && phase_ != Phase::kHalting) halt(now);
  if (event.event == "refused" && phase_ == Phase::kRecovering) halt(now);
  if (event.event == "change" && phase_ == Phase::kRecovering) phase_ = Phase::kTraining;
  if (phase_ != Phase::kHalting || event.fields.value("halt", 0) != number_) return;
  if (event.event == "heard") heard_.insert(process);
  if (event.event != "halted") return;
  Json said = event.fields;
  for (const char* key : {"halt", "rank"}) said.erase(key);
  if (auto standing = run::standing_from_json(said, "halted"))
    standings_.insert_or_assign(process, std::move(*standing));
}

void Membership::kill_unheard(Seconds now) {
  for (const int process : living_) {
    if (standings_.contains(process)) continue;
    const auto carrying = carrying_.find(process);
    const bool is_on_its_way = carrying != carrying_.end() && now - carrying->second < kHearing;
    const bool hears = heard_.contains(process) || is_on_its_way;
    if (now - told_ < (hears ? timeout_ + kHearing : kHearing)) continue;
    if (killed_.insert(process).second) orders_.push_back(KillProcess{process});
  }
}

std::optional<Order> Membership::next(Seconds now) {
  if (phase_ == Phase::kHalting) kill_unheard(now);
  // One that hangs while the others prepare is found by a halt.
  constexpr double kPreparing = 4;
  if (phase_ == Phase::kRecovering && now - told_ > kPreparing * timeout_) halt(now);
  if (orders_.empty()) return std::nullopt;
  Order order = std::move(orders_.front());
  orders_.erase(orders_.begin());
  return order;
}

std::optional<std::vector<run::Standing>> Membership::still() const {
  if (phase_ != Phase::kHalting || living_.empty()) return std::nullopt;
  std::vector<run::Standing> all;
  for (const int process : living_) {
    const auto found = standings_.find(process);
    if (found == standings_.end()) return std::nullopt;
    all.push_back(found->second);
  }
  return all;
}

void Membership::go_on(Seconds now) {
  phase_ = Phase::kRecovering;
  told_ = now;
}

}  // namespace motley::control
