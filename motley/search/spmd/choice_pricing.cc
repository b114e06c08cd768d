#include "motley/search/spmd/choice_pricing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace motley::search {

using graph::Form;
using graph::FormKind;
using graph::Strategy;

namespace {

double slowest(const std::vector<double>& by_class) {
  return *std::max_element(by_class.begin(), by_class.end());
}

}  // namespace

void ChoicePricing::share_samples(const BoundTerms& terms) {
  const std::size_t classes = prices_.classes().size();
  if (classes < 2) return;
  slopes_.assign(graph_.ops.size(), {});
  std::map<std::pair<int, unsigned>, std::vector<double>> known;
  std::vector<double> sum(classes, 0);
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    if (!space_.is_needed[i] || weight(terms.compute[i]) == 0) continue;
    const auto [at, is_new] = known.try_emplace({space_.kind_of[i], terms.compute[i]});
    if (is_new) at->second = sample_slopes(OpId(static_cast<std::int64_t>(i)), terms.compute[i]);
    slopes_[i] = at->second;
    for (std::size_t c = 0; c < slopes_[i].size(); ++c)
      sum[c] += space_.op_count[i] * slopes_[i][c];
  }
  const double all = std::accumulate(sum.begin(), sum.end(), 0.0);
  for (std::vector<double>& slopes : slopes_) {
    const double own = std::accumulate(slopes.begin(), slopes.end(), 0.0);
    for (std::size_t c = 0; c < slopes.size(); ++c) slopes[c] = own / all * sum[c] - slopes[c];
  }
}

double ChoicePricing::operator_cost(OpId op, const Strategy& way, unsigned compute,
                                    unsigned inner) {
  if (is_bound())
    return mean_compute(op, way, weight(compute)) +
           weight(inner) * prices_.inner_exchanges(op, way);
  return objective_.compute * slowest(prices_.compute(op, way)) +
         objective_.exchange * prices_.inner_exchanges(op, way);
}

double ChoicePricing::parameter_cost(ValueId id, const Form& form) {
  if (is_bound()) return objective_.once * weight(kBusy | kBefore | kWork) * mean_update(id, form);
  const double update = slowest(prices_.update(id, form, objective_.states));
  return objective_.compute * update + memory_price(id, form, 2.0 + objective_.states) +
         copies_price(id, form, update);
}

/// Sending a part takes about as long as one of the parts in a gather.
double ChoicePricing::copies_price(ValueId id, const Form& form, double update) {
  if (objective_.copies == 0 || form.kind != FormKind::kSharded) return 0;
  int devices = 0;
  for (const DeviceClass& each : prices_.classes()) devices += each.count;
  const double gather = prices_.conversion(id, form, graph::kWholeForm).exchange;
  return objective_.copies * (update + gather / std::max(1, devices - 1));
}

double ChoicePricing::memory_price(ValueId value, const Form& form, double copies) {
  if (objective_.seconds_per_byte == 0) return 0;
  double most = 0;
  for (std::size_t c = 0; c < prices_.classes().size(); ++c)
    most = std::max(most, prices_.bytes(value, form, c));
  return objective_.seconds_per_byte * copies * most;
}

double ChoicePricing::change_cost(ValueId value, const Form& from, const Form& to, Wanted wanted,
                                  const std::pair<unsigned, unsigned>& bounds) {
  if (from == to) return 0;
  const double count = space_.value_count[value.index()];
  if (is_bound()) return least_change(value, from, to, wanted, bounds);
  const ConversionTime& time = prices_.conversion(value, from, to);
  const bool is_parameter = graph_.value(value).role == graph::ValueRole::kParameter;
  const bool is_gradient = wanted != Wanted::kByOperators;
  const double weight = (is_gradient ? objective_.gradient_exchange : objective_.exchange) *
                        (is_gradient || is_parameter ? objective_.once : 1);
  return count * (objective_.compute * time.copies() + weight * time.exchange);
}

double ChoicePricing::least_change(ValueId value, const Form& from, const std::vector<Form>& wanted,
                                   unsigned bounds) {
  double least = std::numeric_limits<double>::infinity();
  for (const Form& to : wanted)
    least = std::min(least, least_change(value, from, to, Wanted::kByOperators, {bounds, 0}));
  return least;
}

double ChoicePricing::least_change(ValueId value, const Form& from, const Form& to, Wanted wanted,
                                   const std::pair<unsigned, unsigned>& bounds) {
  if (from == to) return 0;
  // Parameters and gradients are exchanged in buckets, which wait once for many.
  const bool in_bucket =
      wanted != Wanted::kByOperators || graph_.value(value).role == graph::ValueRole::kParameter;
  const LeastChange& change = prices_.least_change(value, from, to, in_bucket);
  const double count = space_.value_count[value.index()] * (in_bucket ? objective_.once : 1);
  const double exchange = count * weight(bounds.first) * change.exchange;
  // A form that an operator also needs is exchanged separately, without packing.
  const double copies = wanted == Wanted::kByGradients ? 0 : weight(bounds.second);
  if (copies == 0) return exchange;
  double sum = 0;
  for (std::size_t c = 0; c < change.whole.size(); ++c)
    sum += objective_.kinds[c].weight * change.whole[c];
  for (const LeastChange::Parts& parts : change.parts) sum += mean(parts.times, parts.extent);
  return exchange + count * copies * sum;
}

double ChoicePricing::weight(unsigned bounds) const {
  double sum = 0;
  for (std::size_t b = 0; b < kBounds; ++b)
    if (bounds >> b & 1) sum += objective_.bounds[b];
  return sum;
}

double ChoicePricing::mean(const std::vector<PartTime>& times, std::int64_t extent) const {
  MeanTime mean;
  for (std::size_t c = 0; c < times.size(); ++c)
    mean.add(objective_.kinds[c].count, objective_.kinds[c].weight, times[c],
             range(c, extent == 0 ? 1 : extent));
  return extent == 0 ? mean.whole() : mean.split(extent);
}

/// Returns, by class, the weight of a part of 1 of the samples.
std::vector<double> ChoicePricing::sample_slopes(OpId op, unsigned compute) {
  std::vector<double> slopes;
  for (const Strategy& way : space_.ways[op.index()]) {
    if (way.factor < 0 || extent_of(space_, op, way) != space_.global_batch) continue;
    for (std::size_t c = 0; c < objective_.kinds.size(); ++c) {
      const PartTime& time = prices_.part_times(op, way)[c];
      slopes.push_back(weight(compute) * objective_.kinds[c].weight * (time.whole - time.fixed));
    }
    break;
  }
  return slopes;
}

/// Returns an operator's time with a way, with the prices of its part of the samples. If it is not
/// split by samples, it pays them for the parts there are.
double ChoicePricing::mean_compute(OpId op, const Strategy& way, double weight) {
  const std::vector<PartTime>& times = prices_.part_times(op, way);
  const std::int64_t extent = way.factor < 0 ? 0 : extent_of(space_, op, way);
  if (slopes_.empty() || slopes_[op.index()].empty() || weight == 0)
    return weight * mean(times, extent);
  const bool is_split = extent == space_.global_batch;
  MeanTime of_samples;
  for (std::size_t c = 0; c < times.size(); ++c)
    of_samples.add(objective_.kinds[c].count, is_split ? objective_.kinds[c].weight : 0,
                   is_split ? times[c] : PartTime{}, range(c, space_.global_batch),
                   slopes_[op.index()][c] / weight);
  const double samples = of_samples.split(is_split ? space_.global_batch : 0);
  return weight * (is_split ? samples : samples + mean(times, extent));
}

double ChoicePricing::mean_update(ValueId parameter, const Form& kept) {
  std::vector<PartTime> times;
  for (const double whole : prices_.update(parameter, graph::kWholeForm, objective_.states))
    times.push_back({whole, 0, 0});
  return mean(times, kept.kind == FormKind::kWhole ? 0 : kept.extent);
}

}  // namespace motley::search
