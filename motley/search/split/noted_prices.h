#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "motley/search/split/split_evaluator.h"

namespace motley::search {

/// Prices by another evaluator and records each priced plan, for callers that choose among a
/// planner's plans by another criterion. Serves one thread.
class NotedPrices : public SplitEvaluator {
 public:
  /// `exact` must outlive it.
  explicit NotedPrices(const SplitEvaluator& exact) : exact_(exact) {}

  struct Noted {
    plan::Plan plan;
    plan::Price price;  ///< without peaks if only the step was asked for
  };
  /// Returns each plan once, fastest first; equal steps in the order of pricing.
  std::vector<Noted> noted() const {
    std::vector<Noted> plans = noted_;
    std::stable_sort(plans.begin(), plans.end(),
                     [](const auto& a, const auto& b) { return a.price.step < b.price.step; });
    for (std::size_t i = 0; i < plans.size(); ++i)
      plans.erase(std::remove_if(plans.begin() + static_cast<std::ptrdiff_t>(i) + 1, plans.end(),
                                 [&](const auto& each) { return each.plan == plans[i].plan; }),
                  plans.end());
    return plans;
  }

  const StepCurves& curves(DeviceId device, Setting setting) const override {
    return exact_.curves(device, setting);
  }
  GroupExchanges group_times(const std::vector<DeviceId>& group) const override {
    return exact_.group_times(group);
  }
  std::vector<GroupExchanges> least_times(const std::vector<DeviceId>& pool,
                                          std::size_t most) const override {
    return exact_.least_times(pool, most);
  }
  Bytes peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const override {
    return exact_.peak_bytes(device, samples, setting);
  }
  Result<Seconds> step_time(const plan::Plan& plan) const override {
    auto step = exact_.step_time(plan);
    if (step) noted_.push_back({plan, {*step, {}, {}}});
    return step;
  }
  Result<plan::Price> price(const plan::Plan& plan) const override {
    auto price = exact_.price(plan);
    if (price) noted_.push_back({plan, *price});
    return price;
  }

 private:
  const SplitEvaluator& exact_;
  mutable std::vector<Noted> noted_;
};

}  // namespace motley::search
