#include "motley/search/spmd/price_sharding.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "motley/search/split/step_price.h"
#include "motley/synth/ranks/exchange_methods.h"
#include "motley/synth/ranks/lower_sharded.h"

namespace motley::search {
namespace {

/// Records the largest lack of memory over all devices.
void note_lack(const SpmdStudy& study, std::size_t rank, SpmdPlan& plan) {
  const auto memory = study.device(plan.devices[rank]).room();
  if (memory) plan.lack = std::max(plan.lack, plan.peaks[rank] - *memory);
}

Result<SpmdPlan> price_lowered(SpmdStudy& study, const SpmdStudy::Programs& programs,
                               const std::vector<DeviceId>& devices, synth::Sharding sharding) {
  const synth::Accumulation* accumulation = nullptr;
  for (const synth::Accumulation& each : programs.accumulations)
    if (each.micro_batches == sharding.micro_batches) accumulation = &each;
  std::optional<synth::Accumulation> gathering;
  if (!sharding.gathered_again.empty()) {
    MOTLEY_ASSIGN(gathering, synth::find_accumulation(*programs.graph, sharding,
                                                      study.question().lowering.batch_norm_span));
    accumulation = &*gathering;
  }
  const DeviceClasses classes = study.kinds().classes(devices, sharding.shares);
  program::Program program =
      synth::lower_some_ranks(*programs.graph, sharding, programs.rules, classes.ranks(),
                              study.question().lowering, accumulation);
  if (programs.shortened != nullptr) set_origins(*programs.shortened, program);
  sharding.exchanges = fastest_ways(program, study.exchanges(devices));
  MOTLEY_RETURN_IF_ERROR(synth::set_methods(program, sharding.exchanges));
  MOTLEY_ASSIGN(const auto times, study.model().all_times(program));
  MOTLEY_ASSIGN(const PricedProgram priced,
                price_program(program, sharding.devices, study.model(), times));
  SpmdPlan plan{devices, std::move(sharding), priced.price.step, {}, {}, {}};
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const DevicePrice& device = priced.price.devices[classes.of_rank[rank]];
    plan.compute.push_back(static_cast<double>(device.parts.compute) * 1e-9);
    plan.peaks.push_back(cost::with_framework(study.device(devices[rank]), device.memory.total));
    note_lack(study, rank, plan);
  }
  return plan;
}

/// Extrapolates from a plan with one micro-batch less (or one round of interleaved ones) or one
/// layer less, or from the origin if that lacked memory. A step takes at least any device's
/// compute, even if the shorter one waited longer.
void go_on(const SpmdStudy& study, std::int64_t more, const std::optional<SpmdPlan>& shorter,
           SpmdPlan& plan) {
  const double added = static_cast<double>(more);
  const auto times = static_cast<double>(plan.sharding.micro_batches / plan.sharding.turns);
  plan.step += added * (shorter ? plan.step - shorter->step : plan.step * (1 / times));
  plan.lack = Bytes(0);
  for (std::size_t rank = 0; rank < plan.devices.size(); ++rank) {
    double& compute = plan.compute[rank];
    compute += added * (shorter ? compute - shorter->compute[rank] : compute / times);
    plan.step = std::max(plan.step, Seconds(compute));
    if (shorter) plan.peaks[rank] += more * (plan.peaks[rank] - shorter->peaks[rank]);
    note_lack(study, rank, plan);
  }
}

/// Prices by programs of all micro-batches or, if there are many, extrapolates from fewer.
Result<SpmdPlan> price_all(SpmdStudy& study, const SpmdStudy::Programs& programs,
                           const std::vector<DeviceId>& devices, synth::Sharding sharding) {
  if (programs.accumulations.empty())
    return price_lowered(study, programs, devices, std::move(sharding));
  const std::int64_t times = sharding.micro_batches;
  std::optional<SpmdPlan> shorter, plan;
  for (const synth::Accumulation& each : programs.accumulations) {
    shorter = std::exchange(plan, std::nullopt);
    sharding.micro_batches = each.micro_batches;
    MOTLEY_ASSIGN(plan, price_lowered(study, programs, devices, sharding));
    if (!plan->fits()) break;  // more lack memory, too
  }
  const std::int64_t more = (times - sharding.micro_batches) / sharding.turns;
  if (more > 0) {
    go_on(study, more, shorter, *plan);
    synth::ExchangeWays& ways = plan->sharding.exchanges;
    if (shorter) ways = synth::common_ways(std::move(ways), shorter->sharding.exchanges);
  }
  plan->sharding.micro_batches = times;
  return *std::move(plan);
}

}  // namespace

bool SpmdPlan::is_better_than(const SpmdPlan& other, double by) const {
  if (fits() != other.fits()) return fits();
  if (fits()) return step < other.step * (1 - by);
  return static_cast<double>(lack.value) < static_cast<double>(other.lack.value) * (1 - by);
}

Result<SpmdPlan> price_sharding(SpmdStudy& study, const std::vector<DeviceId>& devices,
                                synth::Sharding sharding) {
  const std::vector<SpmdStudy::Programs>& programs = study.programs();
  MOTLEY_ASSIGN(SpmdPlan plan, price_all(study, programs.back(), devices, sharding));
  const Depths* depths = study.question().depths.get();
  if (depths == nullptr) return plan;
  MOTLEY_ASSIGN(const std::optional<SpmdPlan> shorter,
                price_all(study, programs.front(), devices,
                          restate(sharding, depths->searched, depths->shorter)));
  go_on(study, static_cast<std::int64_t>(depths->searched.left_out), shorter, plan);
  return plan;
}

Result<synth::ExchangeWays> choose_ways(SpmdStudy& study, const std::vector<DeviceId>& devices,
                                        synth::Sharding sharding) {
  const SpmdQuestion& question = study.question();
  const std::vector<std::size_t> ranks = study.kinds().classes(devices, sharding.shares).ranks();
  const auto rules = synth::find_rules_of(*question.graph, sharding, question.lowering.batch_norm);
  std::vector<std::int64_t> numbers;
  for (const synth::Accumulation& each : study.programs().back().accumulations)
    numbers.push_back(each.micro_batches);
  if (numbers.empty() || numbers.back() == sharding.micro_batches)
    numbers = {sharding.micro_batches};
  const auto lower = [&](std::int64_t micro_batches) {
    sharding.micro_batches = micro_batches;
    return synth::lower_ranks(*question.graph, sharding, rules, ranks, question.lowering);
  };
  return fastest_ways(numbers, lower, study.exchanges(devices));
}

namespace {

/// Returns sharded parameters needed whole, directly or after operators, in order of first use.
std::vector<ValueId> find_gathered(const graph::Graph& graph, const synth::Sharding& sharding,
                                   const std::vector<graph::ShardingRule>& rules) {
  std::vector<ValueId> found;
  std::vector<ValueId> made_of(graph.values.size());  // the one sharded parameter it is made of
  std::vector<graph::Form> homes = sharding.sources;
  homes.resize(graph.values.size());
  for (const ValueId id : values_with_role(graph, graph::ValueRole::kParameter))
    if (homes[id.index()].kind == graph::FormKind::kSharded) made_of[id.index()] = id;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const std::vector<ValueId>& operands = rules[i].operands;
    for (std::size_t o = 0; o < operands.size(); ++o) {
      const ValueId root = made_of[operands[o].index()];
      if (!root.is_none() && homes[operands[o].index()].kind == graph::FormKind::kSharded &&
          sharding.ops[i].operands[o] == graph::kWholeForm &&
          std::find(found.begin(), found.end(), root) == found.end())
        found.push_back(root);
    }
    for (std::size_t r = 0; r < graph.ops[i].outputs.size(); ++r) {
      const std::size_t output = graph.ops[i].outputs[r].index();
      homes[output] = sharding.ops[i].results[r];
      if (operands.size() == 1) made_of[output] = made_of[operands[0].index()];
    }
  }
  return found;
}

}  // namespace

Result<SpmdPlan> gather_again(SpmdStudy& study, SpmdPlan plan) {
  constexpr double kMore = 1.05;  // than extrapolated
  const graph::Graph& graph = study.graph();
  const std::vector<ValueId> gathered =
      find_gathered(graph, plan.sharding, study.programs().back().rules);
  if (gathered.empty()) return plan;
  const auto with = [&](std::size_t count) {
    synth::Sharding sharding = plan.sharding;
    sharding.exchanges.clear();
    sharding.gathered_again = {gathered.begin(),
                               gathered.begin() + static_cast<std::ptrdiff_t>(count)};
    return price_sharding(study, plan.devices, std::move(sharding));
  };
  MOTLEY_ASSIGN(SpmdPlan all, with(gathered.size()));
  if (!all.is_better_than(plan)) return plan;
  if (!all.fits()) return all;
  // The largest fraction, over devices, of what gathering all saves that is needed to fit.
  double part = 0;
  for (std::size_t rank = 0; rank < plan.devices.size(); ++rank) {
    const auto memory = study.device(plan.devices[rank]).room();
    if (memory && plan.peaks[rank] > *memory && plan.peaks[rank] > all.peaks[rank])
      part = std::max(part, static_cast<double>((plan.peaks[rank] - *memory).value) /
                                static_cast<double>((plan.peaks[rank] - all.peaks[rank]).value));
  }
  const std::vector<double>& counts = study.space().value_count;
  std::vector<double> bytes;
  for (const ValueId id : gathered)
    bytes.push_back(counts[id.index()] *
                    static_cast<double>(graph::value_bytes(graph.value(id), {})));
  const double wanted = kMore * part * std::accumulate(bytes.begin(), bytes.end(), 0.0);
  std::size_t count = 0;
  for (double sum = 0; count < bytes.size() && sum < wanted; ++count) sum += bytes[count];
  if (count == gathered.size()) return all;
  MOTLEY_ASSIGN(SpmdPlan some, with(count));
  return some.is_better_than(all) ? some : all;
}

SpmdPlan with_price(const SpmdStudy& study, SpmdPlan plan, const plan::Price& price) {
  plan.step = price.step;
  plan.peaks = price.peaks;
  plan.lack = Bytes(0);
  for (std::size_t rank = 0; rank < plan.devices.size(); ++rank) note_lack(study, rank, plan);
  return plan;
}

}  // namespace motley::search
