#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/cost/cost_model.h"
#include "motley/program/program.h"

namespace motley::search {

/// The costs of a program in which some devices represent others: its exchanges are those of the
/// whole group. An empty group: the program has all devices. `seconds`: known instruction times, by
/// device. Model and group must outlive it.
class GroupCost : public cost::CostModel {
 public:
  using KnownTimes = std::map<std::string, std::vector<Seconds>, std::less<>>;
  GroupCost(const cost::CostModel& model, const std::vector<std::string>& group,
            KnownTimes seconds = {})
      : model_(model), group_(group), seconds_(std::move(seconds)) {}
  Result<Times> times(const program::DeviceProgram& program) const override {
    const auto known = seconds_.find(program.device);
    if (known != seconds_.end()) return Times{known->second, {}};
    return model_.times(program);
  }
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override {
    return model_.collective_time(op, bytes, members(devices));
  }
  Result<cost::Transfer> transfer(std::string_view op, const cost::ExchangeSize& size,
                                  const std::vector<std::string>& devices) const override {
    return model_.transfer(op, size, members(devices));
  }
  double interference(const std::string& device,
                      const std::vector<std::string>& devices) const override {
    return model_.interference(device, members(devices));
  }
  std::vector<double> link_capacities() const override { return model_.link_capacities(); }

 private:
  const std::vector<std::string>& members(const std::vector<std::string>& devices) const {
    return group_.empty() ? devices : group_;
  }

  const cost::CostModel& model_;
  const std::vector<std::string>& group_;
  const KnownTimes seconds_;
};

/// Returns the instruction times of a program's devices (CostModel::all_times).
inline GroupCost::KnownTimes known_times(const program::Program& program,
                                         const std::vector<cost::CostModel::Times>& times) {
  GroupCost::KnownTimes seconds;
  for (std::size_t rank = 0; rank < times.size(); ++rank)
    seconds.emplace(program.devices[rank].device, times[rank].seconds);
  return seconds;
}

}  // namespace motley::search
