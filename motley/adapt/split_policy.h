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

/// Learns the best split of the batch while training goes on (docs/algorithms.md, "Curves learned
/// online"): curves of each device and the times of exchanges among so many are learned from every
/// step, the split that is best by them (cost/step/group_split.h, for each number of devices) is
/// asked for where it gains more than what is not known of the present step, and as soon as the
/// steps since the last change have lost as much as a change costs: as with renting and buying,
/// that is at most twice what the best choice of the time would have cost. No device is given more
/// than three times what it ever had, so that no curve is trusted far from where it was measured.
/// Whoever joins without a curve is taken to be as the middle one of the others. One split is asked
/// for at a time. Tells of devices that became slower or quicker, and of those that fall short of
/// their prior.
class SplitPolicy : public policy::Policy {
 public:
  /// `change_cost`: that training stands still for one. `exchanges`: what is believed of them
  /// (learned_exchanges.h).
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
  std::vector<LearnedCurves> curves_;  // of each device
  std::vector<char> is_told_;          // that it falls short of its prior
  std::vector<char> is_gone_;
  LearnedExchanges exchanges_;
  AskedSplit asked_;
  Seconds change_cost_;
  double lost_ = 0;  // seconds by a split that was not the best one, since the last was asked for
};

}  // namespace motley::adapt
