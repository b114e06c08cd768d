#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/cost/profile_cost.h"

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

/// Of what a group can choose from (ProfileCost::collective_curves) the least.
double least_seconds(const std::vector<cost::CollectiveCurve>& curves, double bytes);

/// Seconds of collectives among one group, or the least among some groups. A group of one takes 0,
/// what nobody measured infinity. Remembers what the model says, so one object serves one thread.
class ExchangeTimes {
 public:
  /// The model must outlive it.
  ExchangeTimes(const cost::ProfileCost& model, std::vector<std::string> group)
      : model_(model), groups_({std::move(group)}) {}
  static ExchangeTimes least_of(const cost::ProfileCost& model,
                                std::vector<std::vector<std::string>> groups) {
    ExchangeTimes times(model, std::vector<std::string>());
    times.groups_ = std::move(groups);
    return times;
  }
  /// Of a collective by its name ("motley::all_gather.grouped"); an error if nobody measured it.
  Result<double> find(std::string_view name, double bytes);
  /// The same, infinity if nobody measured it.
  double at(std::string_view name, double bytes);
  QuickestExchange quickest(std::string_view op, const ExchangeBytes& bytes);

 private:
  const cost::ProfileCost& model_;
  std::vector<std::vector<std::string>> groups_;  // names of devices
  using Curves = std::vector<cost::CollectiveCurve>;
  Result<Curves> curves_of(std::string_view name) const;
  std::map<std::string, Result<Curves>, std::less<>> known_;
};

}  // namespace motley::search
