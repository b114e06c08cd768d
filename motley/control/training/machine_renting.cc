#include "motley/control/training/machine_renting.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace motley::control {

void MachineRenting::observe(const policy::Observation& seen) {
  for (const policy::Choice& choice : policy_.observe(seen)) carry_out(choice);
}

void MachineRenting::hear(const std::string& device, Seconds at, Seconds left) {
  now_ = at;
  for (const elastic::JobMachine& machine : policy_.job().machines)
    if (std::find(machine.devices.begin(), machine.devices.end(), device) !=
            machine.devices.end() &&
        noticed_.insert(machine.name).second)
      return observe(policy::NoticeSeen{device, at, left});
}

void MachineRenting::carry_out(const policy::Choice& choice) {
  ++decisions_;
  if (said_ != choice.why)
    adapting_.note(fmt::format("step {}: {}", adapting_.steps_done(), choice.why));
  said_ = choice.why;
  adapting_.record({.policy = std::string(policy_.name()), .choice = choice});
  const auto* rent = std::get_if<policy::Rent>(&choice.action);
  if (rent != nullptr && rent->count > 0) {
    asked_ += rent->count;
    market_.ask(policy_.asked_for(*rent), now_);
  }
  if (rent != nullptr && rent->count < 0) give_back(*rent);
}

/// Leaves the machine out of training; it is returned once it has left (see_machines).
void MachineRenting::give_back(const policy::Rent& rent) {
  for (const elastic::JobMachine* machine : policy_.asked_for(rent)) {
    returning_.insert(machine->name);
    for (const std::string& device : machine->devices) {
      const auto released = adapting_.release(device);
      if (released) continue;
      adapting_.note(fmt::format("warning: {} stays: {}", machine->name, released.error().message));
      returning_.erase(machine->name);
      kept_.push_back(machine->devices.front());
      break;
    }
  }
}

void MachineRenting::see_machines(Seconds at) {
  now_ = at;
  std::map<std::string, std::string> states;
  for (job::DeviceStatus& each : adapting_.device_states())
    states[each.name] = std::move(each.state);
  const std::vector<elastic::JobMachine> machines = policy_.job().machines;
  for (std::size_t m = 0; m < machines.size(); ++m) {
    bool lives = false, leaves = true;
    for (const std::string& device : machines[m].devices) {
      const std::string& state = states[device];
      lives = lives || state == "training" || state == "idle" || state == "leaving";
      leaves = leaves && state == "leaving";
    }
    const std::string& name = machines[m].name;
    const std::string& device = machines[m].devices.front();
    if (leaves) leaving_.insert(name);
    if (lives == policy_.is_there(m)) continue;
    const bool was_left = leaving_.erase(name) > 0, was_noticed = noticed_.erase(name) > 0;
    const bool is_returned = !lives && returning_.erase(name) > 0;
    if (lives)
      market_.come(m, at);
    else
      market_.go(m, is_returned ? MachineMarket::Went::kGivenBack : MachineMarket::Went::kLost);
    observe(lives ? policy::Observation(policy::ArrivalSeen{device, at})
                  : policy::LossSeen{device, at, (was_left || is_returned) && !was_noticed});
  }
  for (const std::string& device : std::exchange(kept_, {}))
    observe(policy::ArrivalSeen{device, at});
}

}  // namespace motley::control
