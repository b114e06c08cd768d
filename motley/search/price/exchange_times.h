#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/cost/cost_model.h"
#include "motley/synth/ranks/exchange_methods.h"

namespace motley::search {

/// Bytes by which an exchange is priced (program::even_bytes): method grouped, any other method.
struct ExchangeBytes {
  double direct = 0, grouped = 0;
};

struct FastestExchange {
  double seconds = 0;
  ExchangeMethod method = ExchangeMethod::kNative;
};

/// Returns the least time over a group's curves (CostModel::collective_curves).
double least_seconds(const std::vector<cost::CollectiveCurve>& curves, double bytes);

/// Seconds of collectives among one group, or the least over some groups: 0 for a group of one,
/// infinity if not measured. Caches the model's curves, so one object serves one thread.
class ExchangeTimes {
 public:
  /// The model must outlive it.
  ExchangeTimes(const cost::CostModel& model, std::vector<std::string> group)
      : model_(&model), group_(std::move(group)) {}
  /// For one or more groups, which must outlive it.
  explicit ExchangeTimes(std::vector<ExchangeTimes*> groups) : groups_(std::move(groups)) {}
  /// Finds a collective's time ("motley::all_gather.grouped"); an error if it was not measured.
  Result<double> find(std::string_view name, double bytes);
  /// The same, but infinity if it was not measured.
  double at(std::string_view name, double bytes);
  FastestExchange fastest(std::string_view op, const ExchangeBytes& bytes);

 private:
  const cost::CostModel* model_ = nullptr;
  std::vector<std::string> group_;      // names of devices
  std::vector<ExchangeTimes*> groups_;  // or these
  using Curves = std::vector<cost::CollectiveCurve>;
  const Result<Curves>& curves(std::string_view name);
  Result<Curves> find_curves(std::string_view name) const;
  bool is_alone() const;
  std::map<std::string, Result<Curves>, std::less<>> known_;
};

synth::ExchangeWays fastest_ways(const program::Program& program, ExchangeTimes& times);

/// Returns the fastest ways that a step's programs in several numbers of micro-batches (one or
/// more) have in common; `lower` makes the programs.
Result<synth::ExchangeWays> fastest_ways(
    const std::vector<std::int64_t>& numbers,
    const std::function<Result<program::Program>(std::int64_t)>& lower, ExchangeTimes& times);

}  // namespace motley::search
