#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/cost/cost_model.h"

namespace motley::search {

/// Bytes by which an exchange is priced (program::even_bytes): passed on around a ring, or given by
/// each member to all others.
struct ExchangeBytes {
  double direct = 0, grouped = 0;
};

/// The quickest way to carry an exchange out.
struct QuickestExchange {
  double seconds = 0;
  ExchangeMethod method = ExchangeMethod::kNative;
};

/// Seconds of collectives among one group. The cost model is asked at powers of two of bytes, each
/// once; in between it is linear, which is exact where an algorithm takes latency + bytes / rate,
/// and a little too short where the best algorithm changes. A group of one takes 0, what nobody
/// measured infinity. Remembers what it was asked, so one object serves one thread.
class ExchangeTimes {
 public:
  /// The model must outlive it.
  ExchangeTimes(const cost::CostModel& model, std::vector<std::string> group)
      : model_(model), group_(std::move(group)) {}
  /// Of a collective by its name ("motley::all_gather.grouped").
  double at(std::string_view name, double bytes);
  QuickestExchange quickest(std::string_view op, const ExchangeBytes& bytes);

 private:
  double at_power(std::string_view name, int exponent);

  const cost::CostModel& model_;
  const std::vector<std::string> group_;  // names of devices
  std::map<std::pair<std::string, int>, double, std::less<>> known_;
};

}  // namespace motley::search
