#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "motley/search/split/split_evaluator.h"
#include "motley/search/split/step_model.h"

namespace motley::search {

/// Prices from tables in memory, with the step model as simulator; for tests and benchmarks.
class TableEvaluator : public SplitEvaluator {
 public:
  /// A device whose peak memory is `base` + `per_sample` * samples.
  struct Device {
    StepCurves alone, shared;
    Bytes base, per_sample;
  };
  using Group = std::function<GroupExchanges(const std::vector<DeviceId>&)>;

  TableEvaluator(std::vector<Device> devices, Group group)
      : devices_(std::move(devices)), group_(std::move(group)) {}

  const StepCurves& curves(DeviceId device, Setting setting) const override {
    const Device& entry = devices_[device.index()];
    return setting == Setting::kAlone ? entry.alone : entry.shared;
  }
  GroupExchanges group_times(const std::vector<DeviceId>& group) const override {
    return group_(group);
  }
  Bytes peak_bytes(DeviceId device, std::int64_t samples, Setting) const override {
    const Device& entry = devices_[device.index()];
    return entry.base + entry.per_sample * samples;
  }
  Result<plan::Price> price(const plan::Plan& plan) const override {
    plan::Price price;
    MOTLEY_ASSIGN(price.step, step_time(plan));
    const std::vector<plan::Member> members = plan::members(plan);
    const Setting setting = members.size() == 1 ? Setting::kAlone : Setting::kShared;
    for (const plan::Member& member : members)
      price.peaks.push_back(peak_bytes(member.device, member.samples, setting));
    return price;
  }
  Result<Seconds> step_time(const plan::Plan& plan) const override {
    BatchSplit split;
    for (const plan::Member& member : plan::members(plan)) {
      split.devices.push_back(member.device);
      split.samples.push_back(member.samples);
    }
    return Seconds(model_step(*this, split));
  }

 private:
  std::vector<Device> devices_;
  Group group_;
};

}  // namespace motley::search
