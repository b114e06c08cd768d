#include "motley/search/split/step_evaluator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "motley/base/check.h"
#include "motley/program/memory.h"
#include "motley/program/parts.h"
#include "motley/search/price/device_pools.h"
#include "motley/search/price/exchange_times.h"
#include "motley/search/price/expected_step.h"
#include "motley/search/price/group_cost.h"
#include "motley/simulate/simulate.h"
#include "motley/synth/stages/lower_stages.h"

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

Result<Seconds> simulate_step(const program::Program& program, const GroupCost& times) {
  MOTLEY_ASSIGN(const auto trace, simulate::simulate(program, times));
  return trace::median_step(trace);
}

/// micro-batches of the steps to extrapolate from; they include the start and the end of a step
constexpr std::int64_t kLine[] = {3, 4, 5};
// Micro-batches; up to this many, the whole step is no longer than those three together.
constexpr std::int64_t kWholeStep = 12;
/// cached times of planned groups; a search soon repeats its queries
constexpr std::size_t kKeptGroups = 64;
/// cached prices; an answer was priced shortly before
constexpr std::size_t kKeptPrices = 32;

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
  const auto reference = static_cast<std::int64_t>(first.alone.table->batches().front());
  MOTLEY_ASSIGN(const auto alone, evaluator->lower(reference, Setting::kAlone));
  MOTLEY_ASSIGN(const auto shared, evaluator->lower(reference, Setting::kShared));
  evaluator->shared_ = find_step_shape(shared->front());
  for (const DeviceId device : devices) {
    evaluator->price_device(device, find_step_shape(alone->front()));
  }
  for (const auto& group : groups_to_measure(cluster, devices)) {
    MOTLEY_RETURN_IF_ERROR(evaluator->exchange_times(group));
  }
  return evaluator;
}

Result<EqualPrograms::Programs> StepEvaluator::lower(std::int64_t samples, Setting setting) const {
  return costs_.programs->find(*graph_, {samples}, setting == Setting::kAlone ? 1 : sharing_,
                               lowering_);
}

void StepEvaluator::price_device(DeviceId device, const StepShape& alone) {
  const auto& times = costs_.devices.at(cluster_->device(device).name);
  for (const auto& [known, prices] : distinct_) {  // equal devices share their curves
    if (known->is_same(times)) {
      prices_.emplace(device, prices);
      return;
    }
  }
  auto prices = std::make_shared<Prices>();
  prices->alone = build_curves(alone, *times.alone.table, times.table_speed());
  prices->shared = build_curves(shared_, *times.shared.table, times.table_speed());
  prices->slack = blocking_slack(shared_, *times.shared.table, times.table_speed());
  distinct_.emplace_back(&times, prices);
  prices_.emplace(device, std::move(prices));
}

const StepCurves& StepEvaluator::curves(DeviceId device, Setting setting) const {
  const Prices& prices = *prices_.at(device);
  return setting == Setting::kAlone ? prices.alone : prices.shared;
}

StepEvaluator::Joining StepEvaluator::joining_of(const std::vector<DeviceId>& group) const {
  return {cost::backend_key(*cluster_, group), cost::route_key(*cluster_, group), group.size()};
}

Result<StepEvaluator::Durations> StepEvaluator::exchange_times(
    const std::vector<DeviceId>& group) const {
  return model_.is_planned_only(group) ? planned_times(group) : measured_times(joining_of(group));
}

Result<StepEvaluator::Durations> StepEvaluator::measured_times(const Joining& joining) const {
  if (const auto found = measured_.find(joining); found != measured_.end()) return found->second;
  Durations seconds;
  for (const StepShape::Exchange& exchange : shared_.exchanges) {
    MOTLEY_ASSIGN(const Seconds time,
                  costs_.collectives.at(exchange.op, joining.route, static_cast<int>(joining.ranks),
                                        exchange.bytes, joining.backend));
    seconds.push_back(time.value);
  }
  return measured_[joining] = std::move(seconds);
}

Result<StepEvaluator::Durations> StepEvaluator::planned_times(std::vector<DeviceId> group) const {
  // A ring goes from rank to rank: in cluster order, as in plans, it enters each node once.
  std::sort(group.begin(), group.end());
  if (const auto found = planned_.find(group); found != planned_.end()) return found->second;
  std::map<std::string, std::vector<cost::CollectiveCurve>> curves;
  Durations seconds;
  for (const StepShape::Exchange& exchange : shared_.exchanges) {
    const auto [known, is_new] = curves.try_emplace(exchange.op);
    if (is_new) {
      MOTLEY_ASSIGN(known->second, model_.collective_curves(exchange.op, group));
    }
    seconds.push_back(least_seconds(known->second, static_cast<double>(exchange.bytes.value)));
  }
  if (planned_.size() >= kKeptGroups) planned_.clear();
  return planned_[std::move(group)] = std::move(seconds);
}

std::vector<double> StepEvaluator::slack_of(const std::vector<DeviceId>& devices) const {
  std::vector<double> most;
  if (prices_.begin()->second->slack.empty()) return most;  // no exchange blocks
  std::set<const Prices*> seen;
  for (const DeviceId device : devices) {
    const Prices& prices = *prices_.at(device);
    if (!seen.insert(&prices).second) continue;
    most.resize(prices.slack.size(), 0.0);
    for (std::size_t i = 0; i < most.size(); ++i) most[i] = std::max(most[i], prices.slack[i]);
  }
  return most;
}

GroupExchanges StepEvaluator::sort_times(const Durations& seconds,
                                         const std::vector<double>& slack) const {
  GroupExchanges times;
  std::size_t blocking = 0;
  for (std::size_t e = 0; e < seconds.size(); ++e) {
    if (shared_.exchanges[e].blocking)
      times.blocking += std::max(0.0, seconds[e] - slack[blocking++]);
    else
      times.exchange.push_back(seconds[e]);
  }
  return times;
}

StepEvaluator::Durations StepEvaluator::never() const {
  return Durations(shared_.exchanges.size(), std::numeric_limits<double>::infinity());
}

GroupExchanges StepEvaluator::group_times(const std::vector<DeviceId>& group) const {
  return sort_times(exchange_times(group).value_or(never()), slack_of(group));
}

StepEvaluator::Durations StepEvaluator::least_planned(const cost::LeastAllReduce& least,
                                                      std::size_t ranks) const {
  const std::vector<cost::LeastAllReduce::Line> lines = least.lines(ranks);
  Durations seconds;
  for (const StepShape::Exchange& exchange : shared_.exchanges) {
    double time = exchange.op == program::kAllReduce ? std::numeric_limits<double>::infinity() : 0;
    for (const auto& [latency, seconds_per_byte] : lines)
      time = std::min(time, latency + seconds_per_byte * static_cast<double>(exchange.bytes.value));
    seconds.push_back(time);
  }
  return seconds;
}

std::vector<GroupExchanges> StepEvaluator::least_times(const std::vector<DeviceId>& pool,
                                                       std::size_t most) const {
  std::vector<GroupExchanges> times;
  const std::vector<double> slack = slack_of(pool);
  if (model_.is_planned_only(pool)) {
    const auto least = model_.least_all_reduce(pool);
    for (std::size_t k = 2; k <= most; ++k)
      times.push_back(sort_times(
          least ? least_planned(*least, k) : Durations(shared_.exchanges.size(), 0.0), slack));
    return times;
  }
  // From some number on, the first devices are joined as the whole pool is.
  const Joining whole = joining_of(pool);
  for (std::size_t k = 2, is_whole = 0; k <= most; ++k) {
    Joining joining{whole.backend, whole.route, k};
    if (is_whole == 0)
      joining = joining_of({pool.begin(), pool.begin() + static_cast<std::ptrdiff_t>(k)});
    is_whole = joining.route == whole.route && joining.backend == whole.backend ? 1 : 0;
    times.push_back(sort_times(measured_times(joining).value_or(never()), slack));
  }
  return times;
}

Bytes StepEvaluator::peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const {
  const auto& tables = costs_.devices.at(cluster_->device(device).name);
  const auto* times = (setting == Setting::kAlone ? tables.alone : tables.shared).table.get();
  const auto [peak, is_new] =
      peaks_.try_emplace({times, samples}, Bytes(std::numeric_limits<std::int64_t>::max()));
  if (!is_new) return peak->second;
  if (const auto program = lower(samples, setting)) {
    const Bytes tensors =
        program::find_memory_peak((*program)->front(), times->scratch_bytes(samples)).total;
    peak->second = cost::with_framework(cluster_->device(device), tensors);
  }
  return peak->second;
}

StepEvaluator::Group StepEvaluator::find_group(const plan::Plan& plan) const {
  Group group;
  std::map<const Prices*, int> classes;
  for (const plan::Member& member : plan::members(plan)) {
    group.names.push_back(cluster_->device(member.device).name);
    const auto next = static_cast<int>(classes.size());
    // The slowest of several varying devices counts, so none represents another.
    const bool varies = costs_.jitter.contains(group.names.back());
    group.classes.push_back(
        varies ? -static_cast<int>(group.names.size())
               : classes.emplace(prices_.at(member.device).get(), next).first->second);
  }
  return group;
}

/// Prices by a program of all devices, which may all differ.
Result<PlanPrice> StepEvaluator::price_stages(const plan::Plan& plan) const {
  if (costs_.jitter.empty()) {  // none of several varying devices represents another
    MOTLEY_ASSIGN(auto by_kinds,
                  price_stage_kinds(*graph_, plan, *cluster_, find_group(plan).classes, model_));
    if (by_kinds) return *std::move(by_kinds);
  }
  MOTLEY_ASSIGN(const program::Program program,
                synth::lower_stages(*graph_, plan, *cluster_, synth::options_of(plan),
                                    {plan::members(plan)}));
  MOTLEY_ASSIGN(const auto times, model_.all_times(program));
  const std::vector<std::string> all;
  MOTLEY_ASSIGN(PricedProgram priced, price_program(program, all, model_, times));
  PlanPrice price{std::move(priced.price), {}, {}};
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank) price.of_rank.push_back(rank);
  const GroupCost known(model_, all, known_times(program, times));
  MOTLEY_ASSIGN(price.step, expected_step(price.kinds.step, program, known, costs_.jitter));
  return price;
}

Result<PlanPrice> StepEvaluator::price_whole(const plan::Plan& plan) const {
  if (plan::has_stages(plan)) return price_stages(plan);
  const Group group = find_group(plan);
  MOTLEY_ASSIGN(auto kinds, synth::lower_kinds(*graph_, plan, *cluster_, group.classes));
  MOTLEY_ASSIGN(const auto times, model_.all_times(kinds.program));
  MOTLEY_ASSIGN(PricedProgram priced, price_program(kinds.program, group.names, model_, times));
  PlanPrice price{std::move(priced.price), std::move(kinds.of_rank), {}};
  const GroupCost known(model_, group.names, known_times(kinds.program, times));
  MOTLEY_ASSIGN(price.step, expected_step(price.kinds.step, kinds.program, known, costs_.jitter));
  return price;
}

Result<std::optional<PlanPrice>> StepEvaluator::price_by_line(const plan::Plan& plan) const {
  const std::int64_t times = plan.replicas.front().micro_batches;
  const std::int64_t together = plan.replicas.front().turns;  // the program repeats after this many
  if (times <= kWholeStep * together || !costs_.jitter.empty() || plan::has_stages(plan))
    return std::nullopt;
  std::vector<StepPrice> shorter;
  std::optional<PlanPrice> price;
  for (const std::int64_t fewer : kLine) {
    MOTLEY_ASSIGN(price,
                  price_whole(plan::in_micro_batches(plan, fewer * together + times % together)));
    shorter.push_back(price->kinds);
  }
  auto line = continue_line(shorter, times / together - kLine[2]);
  if (!line) return std::nullopt;
  price->step = line->step;
  price->kinds = std::move(*line);
  return price;
}

Result<PlanPrice> StepEvaluator::price_parts(const plan::Plan& plan) const {
  const auto known = std::find_if(priced_.begin(), priced_.end(),
                                  [&](const auto& each) { return each.first == plan; });
  if (known != priced_.end()) return known->second;
  MOTLEY_ASSIGN(std::optional<PlanPrice> price, price_by_line(plan));
  if (!price) {
    MOTLEY_ASSIGN(price, price_whole(plan));
  }
  if (priced_.size() >= kKeptPrices) priced_.pop_front();
  priced_.emplace_back(plan, *price);
  return *std::move(price);
}

Result<plan::Price> StepEvaluator::price(const plan::Plan& plan) const {
  MOTLEY_ASSIGN(const PlanPrice parts, price_parts(plan));
  plan::Price price{parts.step, {}, parts.kinds.rounding()};
  const std::vector<plan::Member> members = plan::members(plan);
  for (std::size_t rank = 0; rank < members.size(); ++rank)
    price.peaks.push_back(
        cost::with_framework(cluster_->device(members[rank].device),
                             parts.kinds.devices[parts.of_rank[rank]].memory.total));
  return price;
}

Result<Seconds> StepEvaluator::step_time(const plan::Plan& plan) const {
  if (plan::has_stages(plan)) {
    MOTLEY_ASSIGN(const PlanPrice price, price_stages(plan));
    return price.kinds.step;
  }
  const Group group = find_group(plan);
  MOTLEY_ASSIGN(const auto kinds, synth::lower_kinds(*graph_, plan, *cluster_, group.classes));
  return simulate_step(kinds.program, GroupCost(model_, group.names));
}

}  // namespace motley::search
