#include "motley/search/split/step_evaluator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "motley/base/check.h"
#include "motley/program/memory.h"
#include "motley/search/price/device_pools.h"
#include "motley/search/price/group_cost.h"
#include "motley/simulate/simulate.h"

namespace motley::search {
namespace {

std::vector<DeviceId> priced_devices(const cluster::Cluster& cluster, const Costs& costs) {
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    if (costs.devices.contains(cluster.devices[i].name)) {
      devices.emplace_back(static_cast<std::int64_t>(i));
    }
  }
  return devices;
}

}  // namespace

Result<std::unique_ptr<StepEvaluator>> StepEvaluator::make(const graph::Graph& graph,
                                                           const cluster::Cluster& cluster,
                                                           const synth::LowerOptions& lowering,
                                                           const Costs& costs) {
  auto evaluator =
      std::unique_ptr<StepEvaluator>(new StepEvaluator(graph, cluster, lowering, costs));
  const std::vector<DeviceId> devices = priced_devices(cluster, costs);
  MOTLEY_CHECK(!devices.empty());
  const auto& first = costs.devices.begin()->second;
  const auto reference = static_cast<std::int64_t>(first.alone->batches().front());
  MOTLEY_ASSIGN(const auto alone, evaluator->lower(reference, Setting::kAlone));
  MOTLEY_ASSIGN(const auto shared, evaluator->lower(reference, Setting::kShared));
  evaluator->shared_ = find_step_shape(shared);
  for (const DeviceId device : devices) {
    evaluator->price_device(device, find_step_shape(alone));
  }
  for (const auto& group : groups_to_measure(cluster, devices)) {
    MOTLEY_RETURN_IF_ERROR(evaluator->exchange_times(group));
  }
  return evaluator;
}

Result<program::DeviceProgram> StepEvaluator::lower(std::int64_t samples, Setting setting) const {
  const int ranks = setting == Setting::kAlone ? 1 : 2;
  const synth::Placement placement{
      .device = "", .samples = samples, .global_batch = samples * ranks, .ranks = ranks};
  return synth::lower_device(*graph_, placement, lowering_);
}

void StepEvaluator::price_device(DeviceId device, const StepShape& alone) {
  const auto& times = costs_.devices.at(cluster_->device(device).name);
  for (const auto& [other, prices] : prices_) {  // equal devices share their curves
    const auto& known = costs_.devices.at(cluster_->device(other).name);
    if (known.alone == times.alone && known.shared == times.shared && known.pace == times.pace) {
      prices_.emplace(device, prices);
      return;
    }
  }
  auto prices = std::make_shared<Prices>();
  prices->alone = build_curves(alone, *times.alone, times.table_speed());
  prices->shared = build_curves(shared_, *times.shared, times.table_speed());
  prices->slack = blocking_slack(shared_, *times.shared, times.table_speed());
  prices_.emplace(device, std::move(prices));
}

const StepCurves& StepEvaluator::curves(DeviceId device, Setting setting) const {
  const Prices& prices = *prices_.at(device);
  return setting == Setting::kAlone ? prices.alone : prices.shared;
}

Result<std::vector<double>> StepEvaluator::exchange_times(
    const std::vector<DeviceId>& group) const {
  const GroupKey key{cost::backend_key(*cluster_, group) + "|" + cost::route_key(*cluster_, group),
                     static_cast<int>(group.size())};
  if (const auto found = exchanges_.find(key); found != exchanges_.end()) return found->second;
  std::vector<std::string> names;
  for (const DeviceId device : group) names.push_back(cluster_->device(device).name);
  std::vector<double> seconds;
  for (const StepShape::Exchange& exchange : shared_.exchanges) {
    MOTLEY_ASSIGN(const Seconds time, model_.collective_time(exchange.op, exchange.bytes, names));
    seconds.push_back(time.value);
  }
  exchanges_[key] = seconds;
  return seconds;
}

GroupExchanges StepEvaluator::group_times(const std::vector<DeviceId>& group) const {
  const auto seconds = exchange_times(group);
  GroupExchanges times;
  std::size_t blocking = 0;
  for (std::size_t e = 0; e < shared_.exchanges.size(); ++e) {
    const double time = seconds ? (*seconds)[e] : std::numeric_limits<double>::infinity();
    if (!shared_.exchanges[e].blocking) {
      times.exchange.push_back(time);
      continue;
    }
    double slack = 0.0;
    for (const DeviceId device : group) {
      slack = std::max(slack, prices_.at(device)->slack[blocking]);
    }
    ++blocking;
    times.blocking += std::max(0.0, time - slack);
  }
  return times;
}

Bytes StepEvaluator::peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const {
  const auto& tables = costs_.devices.at(cluster_->device(device).name);
  const auto* times = (setting == Setting::kAlone ? tables.alone : tables.shared).get();
  const auto [peak, is_new] =
      peaks_.try_emplace({times, samples}, Bytes(std::numeric_limits<std::int64_t>::max()));
  if (!is_new) return peak->second;
  if (const auto program = lower(samples, setting)) {
    const Bytes tensors = program::find_memory_peak(*program, times->scratch_bytes(samples)).total;
    peak->second = cost::with_framework(cluster_->device(device), tensors);
  }
  return peak->second;
}

StepEvaluator::Representatives StepEvaluator::find_representatives(
    const std::vector<plan::Member>& members) const {
  Representatives found;
  std::map<std::pair<const Prices*, std::int64_t>, std::size_t> kinds;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const auto& [device, samples] = members[rank];
    const auto [kind, is_new] =
        kinds.try_emplace({prices_.at(device).get(), samples}, found.ranks.size());
    if (is_new) found.ranks.push_back(rank);
    found.of_rank.push_back(kind->second);
  }
  return found;
}

Result<Bytes> StepEvaluator::peak_of(DeviceId device, const program::DeviceProgram& program) const {
  MOTLEY_ASSIGN(const std::vector<Bytes> scratch, model_.scratch_bytes(program));
  const Bytes tensors = program::find_memory_peak(program, scratch).total;
  return cost::with_framework(cluster_->device(device), tensors);
}

Result<plan::Price> StepEvaluator::price(const plan::Plan& plan) const {
  MOTLEY_ASSIGN(program::Program program, synth::lower(*graph_, plan, *cluster_));
  const std::vector<plan::Member> members = plan::members(plan);
  plan::Price price;
  if (plan::find_shared_region(plan) == nullptr) {
    const auto [ranks, of_rank] = find_representatives(members);
    std::vector<Bytes> peaks;
    for (const std::size_t rank : ranks) {
      MOTLEY_ASSIGN(const Bytes peak, peak_of(members[rank].device, program.devices[rank]));
      peaks.push_back(peak);
    }
    for (const std::size_t place : of_rank) price.peaks.push_back(peaks[place]);
    MOTLEY_ASSIGN(price.step, step_time(plan));
  } else {
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      MOTLEY_ASSIGN(const Bytes peak, peak_of(members[rank].device, program.devices[rank]));
      price.peaks.push_back(peak);
    }
    MOTLEY_ASSIGN(const auto trace, simulate::simulate(program, model_));
    price.step = trace::median_step(trace);
  }
  price.program = std::make_shared<const program::Program>(std::move(program));
  return price;
}

Result<Seconds> StepEvaluator::step_time(const plan::Plan& plan) const {
  if (plan::find_shared_region(plan) != nullptr) {
    MOTLEY_ASSIGN(const plan::Price whole, price(plan));
    return whole.step;
  }
  const std::vector<plan::Member> members = plan::members(plan);
  std::vector<std::string> group;
  for (const plan::Member& member : members) group.push_back(cluster_->device(member.device).name);
  const std::vector<std::size_t> ranks = find_representatives(members).ranks;
  MOTLEY_ASSIGN(const auto program, synth::lower_some_replicas(*graph_, plan, *cluster_, ranks));
  MOTLEY_ASSIGN(const auto trace, simulate::simulate(program, GroupCost(model_, group)));
  return trace::median_step(trace);
}

}  // namespace motley::search
