#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/adapt/device_limits.h"
#include "motley/adapt/learned_curves.h"
#include "motley/adapt/learned_exchanges.h"
#include "motley/cost/step/group_split.h"
#include "motley/policy/policy.h"

namespace motley::adapt {

/// Learns the best split of the batch during training (docs/algorithms.md, "Curves learned
/// online"). It learns each device's curves and the exchange times by number of devices from every
/// step. It requests the best split by them (cost/step/group_split.h, for each number of devices)
/// where the gain exceeds the uncertainty of the present step, and once the steps since the last
/// change have lost the cost of a change. As in rent or buy, that loses at most twice what the best
/// choice of the time would have cost. A device gets at most three times its largest samples, so
/// that no curve is trusted far from its measurements. A joining device without a curve counts as
/// the median of the others. Only one split is requested at a time. Reports devices that became
/// slower or faster, or fall short of their prior.
class SplitPolicy : public policy::Policy {
 public:
  /// `change_cost`: pause of training for a change. `exchanges`: prior (learned_exchanges.h).
  explicit SplitPolicy(std::vector<DeviceLimits> devices, Seconds change_cost = Seconds(0),
                       std::vector<cost::GroupExchanges> exchanges = {});

  std::string_view name() const override { return "motley"; }
  std::vector<policy::Choice> observe(const policy::Observation& observation) override;
  Json state() const override;
  Result<void> restore(const Json& state, const std::string& where) override;

 private:
  struct Group;
  class Prices;

  void add(DeviceLimits limits);
  void learn(const policy::StepSeen& seen, std::vector<policy::Choice>& choices);
  void share_spread();
  Group find_group(const policy::StepSeen& seen) const;
  static std::optional<cost::GroupSplit> find_best(const Group& group, const Prices& prices,
                                                   std::int64_t batch, std::size_t present);
  void choose(const policy::StepSeen& seen, std::vector<policy::Choice>& choices);

  std::vector<DeviceLimits> devices_;
  std::vector<LearnedCurves> curves_;  // by device
  std::vector<char> is_told_;          // whether a device's shortfall was reported
  std::vector<char> is_gone_;
  LearnedExchanges exchanges_;
  AskedSplit asked_;
  Seconds change_cost_;
  double lost_ = 0;  // seconds lost to the best split since the last request
};

}  // namespace motley::adapt
