#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/cost/step/step_curves.h"
#include "motley/policy/observation.h"

namespace motley::adapt {

/// Learns the communication time of groups in a step by their number of devices with samples
/// (docs/algorithms.md, "Curves learned online"): the median of the last steps. A number without
/// steps gets its prior times the nearest number's measurement over prior; without a prior, the
/// nearest's measurement. A device alone has no exchanges and tells nothing about several.
///
///   prior of 2 and 3 devices 10 and 20 ms, 3 devices took 30: 2 devices take 15
class LearnedExchanges {
 public:
  /// `believed[i]`: the prior of the fastest i + 2 devices; empty: no prior.
  explicit LearnedExchanges(std::vector<cost::GroupExchanges> believed = {})
      : believed_(std::move(believed)) {}

  void observe(const policy::StepSeen& step);
  /// Returns a group's exchanges; all groups of two or more have the same number of them.
  cost::GroupExchanges of(std::size_t devices) const;

  Json state() const;
  Result<void> restore(const Json& json, const std::string& where);

 private:
  /// For one number of devices: exchanges of the last steps, followed by blocking ones.
  using Rows = std::vector<std::vector<double>>;

  const cost::GroupExchanges* believed(std::size_t devices) const;
  const std::pair<const std::size_t, Rows>* nearest(std::size_t devices) const;

  std::vector<cost::GroupExchanges> believed_;
  std::map<std::size_t, Rows> seen_;  // by number of devices, 2 or more
};

}  // namespace motley::adapt
