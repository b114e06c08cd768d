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

/// What groups spend on communication in a step, by how many of their devices have samples
/// (docs/algorithms.md, "Curves learned online"): in the middle of the last steps of so many. Of a
/// number that has taken none it is what is believed of it, times what the nearest one took over
/// what was believed of that; without a belief it is that of the nearest one. A device alone has
/// nobody to exchange with, and says nothing of several.
///
///   believed of 2 and 3 devices 10 and 20 ms, 3 devices took 30: 2 devices take 15
class LearnedExchanges {
 public:
  /// `believed[i]`: of i + 2 devices, the fastest; empty: nothing is believed.
  explicit LearnedExchanges(std::vector<cost::GroupExchanges> believed = {})
      : believed_(std::move(believed)) {}

  void observe(const policy::StepSeen& step);
  /// All of at least two devices have as many exchanges.
  cost::GroupExchanges of(std::size_t devices) const;

  Json state() const;
  Result<void> restore(const Json& json, const std::string& where);

 private:
  /// Of one number of devices: exchanges of the last steps, and behind them what blocks.
  using Rows = std::vector<std::vector<double>>;

  const cost::GroupExchanges* believed(std::size_t devices) const;
  const std::pair<const std::size_t, Rows>* nearest(std::size_t devices) const;

  std::vector<cost::GroupExchanges> believed_;
  std::map<std::size_t, Rows> seen_;  // by number of devices, 2 or more
};

}  // namespace motley::adapt
