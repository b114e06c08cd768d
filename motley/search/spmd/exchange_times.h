#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/cost/cost_model.h"

namespace motley::search {

/// Seconds of collectives among one group. The cost model is asked at powers of two of bytes, each
/// once; in between it is linear, which is exact where an algorithm takes latency + bytes / rate,
/// and a little too short where the best algorithm changes. A group of one takes 0, what nobody
/// measured infinity. Remembers what it was asked, so one object serves one thread.
class ExchangeTimes {
 public:
  /// The model must outlive it.
  ExchangeTimes(const cost::CostModel& model, std::vector<std::string> group)
      : model_(model), group_(std::move(group)) {}
  double at(std::string_view op, double bytes);

 private:
  double at_power(std::string_view op, int exponent);

  const cost::CostModel& model_;
  const std::vector<std::string> group_;  // names of devices
  std::map<std::pair<std::string, int>, double, std::less<>> known_;
};

}  // namespace motley::search
