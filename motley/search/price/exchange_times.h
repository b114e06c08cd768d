#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/cost/profile_cost.h"
#include "motley/synth/ranks/exchange_methods.h"

namespace motley::search {

/// Bytes by which an exchange is priced (program::even_bytes): passed on around a ring, or given by
/// each member to all others.
struct ExchangeBytes {
  double direct = 0, grouped = 0;
};

/// The fastest way to carry an exchange out.
struct FastestExchange {
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
      : model_(&model), group_(std::move(group)) {}
  /// Of groups that must outlive it; one or more.
  explicit ExchangeTimes(std::vector<ExchangeTimes*> groups) : groups_(std::move(groups)) {}
  /// Of a collective by its name ("motley::all_gather.grouped"); an error if nobody measured it.
  Result<double> find(std::string_view name, double bytes);
  /// The same, infinity if nobody measured it.
  double at(std::string_view name, double bytes);
  FastestExchange fastest(std::string_view op, const ExchangeBytes& bytes);

 private:
  const cost::ProfileCost* model_ = nullptr;
  std::vector<std::string> group_;      // names of devices
  std::vector<ExchangeTimes*> groups_;  // or these
  using Curves = std::vector<cost::CollectiveCurve>;
  const Result<Curves>& curves(std::string_view name);
  Result<Curves> find_curves(std::string_view name) const;
  bool is_alone() const;
  std::map<std::string, Result<Curves>, std::less<>> known_;
};

/// The fastest way of each exchange of a program.
synth::ExchangeWays fastest_ways(const program::Program& program, ExchangeTimes& times);

/// What the fastest ways of a step in several numbers of micro-batches (one or more) have in
/// common; `lower` makes the programs.
Result<synth::ExchangeWays> fastest_ways(
    const std::vector<std::int64_t>& numbers,
    const std::function<Result<program::Program>(std::int64_t)>& lower, ExchangeTimes& times);

}  // namespace motley::search
