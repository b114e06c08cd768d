#include "motley/job/device_table.h"

#include <algorithm>

#include "motley/base/check.h"

namespace motley::job {

DeviceTable::DeviceTable(const std::vector<std::string>& devices,
                         const std::vector<std::string>& absent) {
  for (const std::string& device : devices) {
    const bool is_absent = std::find(absent.begin(), absent.end(), device) != absent.end();
    states_.push_back({.name = device, .life = is_absent ? Life::kAbsent : Life::kJoining});
  }
}

int DeviceTable::add(const std::string& device) {
  const int process = find(device).value_or(size());
  if (process == size()) states_.push_back({.name = device});
  return process;
}

bool DeviceTable::start(int process) {
  DeviceState& state = (*this)[process];
  if (state.has_process()) return false;
  state.life = Life::kJoining;
  state.has_rejoined = true;
  return true;
}

bool DeviceTable::become_ready(int process) {
  DeviceState& state = (*this)[process];
  if (state.life != Life::kJoining) return false;
  state.life = Life::kWorking;
  return true;
}

void DeviceTable::leave(int process) {
  MOTLEY_CHECK((*this)[process].lives());
  (*this)[process].life = Life::kLeaving;
}

void DeviceTable::stay(int process) {
  DeviceState& state = (*this)[process];
  if (state.life == Life::kLeaving) state.life = Life::kWorking;
}

void DeviceTable::stay() {
  for (int process = 0; process < size(); ++process) stay(process);
}

bool DeviceTable::dismiss(int process) {
  DeviceState& state = (*this)[process];
  if (!state.has_process()) return false;
  state.life = Life::kDismissed;
  return true;
}

void DeviceTable::finish(int process) {
  DeviceState& state = (*this)[process];
  if (state.has_process() && state.life != Life::kDismissed) state.life = Life::kDone;
}

Life DeviceTable::lose(int process) {
  DeviceState& state = (*this)[process];
  const Life was = state.life;
  state.life = Life::kAbsent;
  state.awaits_plan = state.awaits_generation = state.was_told = false;
  return was;
}

std::optional<int> DeviceTable::find(const std::string& device) const {
  const auto found = std::find_if(states_.begin(), states_.end(),
                                  [&](const DeviceState& each) { return each.name == device; });
  if (found == states_.end()) return std::nullopt;
  return static_cast<int>(found - states_.begin());
}

bool DeviceTable::lives(const std::string& device) const {
  const auto process = find(device);
  return process && (*this)[*process].lives();
}

std::vector<int> DeviceTable::living() const {
  std::vector<int> living;
  for (int process = 0; process < size(); ++process)
    if ((*this)[process].lives()) living.push_back(process);
  return living;
}

DeviceTable::Named DeviceTable::where(const std::function<bool(const DeviceState&)>& is_so) const {
  Named named;
  for (int process = 0; process < size(); ++process)
    if (is_so((*this)[process])) named.emplace((*this)[process].name, process);
  return named;
}

std::vector<DeviceStatus> DeviceTable::statuses(const std::set<std::string>& used) const {
  std::vector<DeviceStatus> all;
  for (const DeviceState& each : states_) {
    const bool comes = each.awaits_plan || (each.has_process() && !each.lives());
    all.push_back({.name = each.name,
                   .state = comes                         ? "coming"
                            : !each.has_process()         ? "absent"
                            : each.life == Life::kLeaving ? "leaving"
                            : used.contains(each.name)    ? "training"
                                                          : "idle",
                   .why = each.why,
                   .has_come = !each.text});
  }
  return all;
}

}  // namespace motley::job
