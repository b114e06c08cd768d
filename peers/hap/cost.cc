#include "peers/hap/cost.h"

#include <algorithm>
#include <numeric>

#include "motley/base/check.h"

namespace motley::peers {

Shares proportional_shares(const HapCluster& cluster) {
  const auto& flops = cluster.device_flops;
  const double sum = std::accumulate(flops.begin(), flops.end(), 0.0);
  Shares shares;
  for (const double speed : flops) shares.push_back(speed / sum);
  return shares;
}

ShareEffect effect_of(const Shares& shares, const HapCluster& cluster) {
  MOTLEY_CHECK(shares.size() == cluster.device_flops.size());
  ShareEffect effect;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const double speed = cluster.device_flops[i];
    effect.per_shared_flop = std::max(effect.per_shared_flop, shares[i] / speed);
    effect.per_whole_flop = std::max(effect.per_whole_flop, 1 / speed);
    effect.padding = std::max(effect.padding, static_cast<double>(shares.size()) * shares[i]);
  }
  return effect;
}

LinearTime& LinearTime::operator+=(const LinearTime& other) {
  shared_flops += other.shared_flops;
  whole_flops += other.whole_flops;
  padded_s += other.padded_s;
  constant_s += other.constant_s;
  return *this;
}

HapCost::HapCost(const HapCluster& cluster, const HapCostOptions& options, const Shares& shares)
    : rates_(cluster.bytes_per_second),
      options_(options),
      devices_(static_cast<double>(cluster.device_flops.size())),
      effect_(effect_of(shares, cluster)) {}

LinearTime HapCost::whole_collective(double elements, double rate) const {
  LinearTime time;
  time.constant_s = elements * options_.bytes_per_element / rate + options_.latency.value;
  return time;
}

/// Prices a padded collective; a dimension of length 1 is whole on every device.
LinearTime HapCost::padded_collective(double elements, double rate, bool is_split) const {
  if (!is_split) return whole_collective(devices_ * elements, rate);
  LinearTime time;
  time.padded_s = elements * options_.bytes_per_element / rate;
  time.constant_s = options_.latency.value;
  return time;
}

LinearTime HapCost::shard_collective(double elements, bool is_split, double rate,
                                     double grouped) const {
  const LinearTime padded = padded_collective(elements, rate, is_split);
  if (!options_.may_group) return padded;
  const LinearTime by_owner = whole_collective(elements, grouped);
  return by_owner.seconds(effect_) < padded.seconds(effect_) ? by_owner : padded;
}

LinearTime HapCost::all_gather(double elements, bool is_split) const {
  return shard_collective(elements, is_split, rates_.all_gather, rates_.grouped_all_gather);
}

LinearTime HapCost::reduce_scatter(double elements, bool is_split) const {
  return shard_collective(elements, is_split, rates_.reduce_scatter, rates_.grouped_reduce_scatter);
}

std::optional<LinearTime> HapCost::load(const ReferenceTensor& tensor, HapForm form) const {
  const bool is_parameter = tensor.role == TensorRole::kParameter;
  if (tensor.role == TensorRole::kActivation || form == HapForm::reduce()) return {};
  if (form == HapForm::factored() && !is_parameter) return {};
  const bool is_summed = is_parameter && form == HapForm::identity();
  return is_summed ? whole_collective(element_count(tensor), rates_.all_reduce) : LinearTime{};
}

LinearTime HapCost::compute(const Triple& triple) const {
  LinearTime time;
  time.shared_flops = triple.shared_flops;
  time.whole_flops = triple.whole_flops;
  for (const double elements : triple.factors) time += all_gather(elements);
  return time;
}

std::optional<LinearTime> HapCost::conversion(const ReferenceTensor& tensor, HapForm from,
                                              HapForm to) const {
  const double elements = element_count(tensor);
  const auto splits = [&tensor](HapForm form) { return tensor.shape[form.dimension()] > 1; };
  LinearTime time;
  if (from == to || from == HapForm::factored() || to == HapForm::factored()) return {};
  if (from == HapForm::identity() && to.is_gather()) return time;
  if (from == HapForm::reduce() && to == HapForm::identity()) {
    time += whole_collective(elements, rates_.all_reduce);
    time += whole_collective(elements, rates_.all_reduce);
    return time;
  }
  if (from.is_gather() && to.is_gather()) {
    time += padded_collective(elements, rates_.all_to_all, splits(from));
    time += padded_collective(elements, rates_.all_to_all, splits(to));
    return time;
  }
  const bool is_gathering = from.is_gather() && to == HapForm::identity();
  const bool is_scattering = from == HapForm::reduce() && to.is_gather();
  if (!is_gathering && !is_scattering) return {};
  const bool is_split = splits(is_gathering ? from : to);
  time += all_gather(elements, is_split);
  time += reduce_scatter(elements, is_split);
  return time;
}

}  // namespace motley::peers
