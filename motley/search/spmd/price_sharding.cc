#include "motley/search/spmd/price_sharding.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "motley/program/memory.h"
#include "motley/search/price/group_cost.h"
#include "motley/simulate/simulate.h"
#include "motley/synth/exchange_methods.h"
#include "motley/synth/lower_sharded.h"
#include "motley/trace/trace.h"

namespace motley::search {
namespace {

/// Seconds of compute of each rank in a simulated step.
std::vector<double> compute_of(const trace::Trace& trace) {
  std::vector<double> seconds;
  for (const trace::Breakdown& part : trace::break_down(trace))
    seconds.push_back(static_cast<double>(part.compute) * 1e-9);
  return seconds;
}

/// Of its memory, by which a plan lacks most of all devices.
void note_lack(const SpmdStudy& study, std::size_t rank, SpmdPlan& plan) {
  const auto& memory = study.device(plan.devices[rank]).memory;
  if (memory) plan.lack = std::max(plan.lack, plan.peaks[rank] - *memory);
}

/// By the program of all its micro-batches.
Result<SpmdPlan> price_program(SpmdStudy& study, const std::vector<DeviceId>& devices,
                               synth::Sharding sharding, const synth::Accumulation* accumulation) {
  const DeviceClasses classes = study.kinds().classes(devices, sharding.shares);
  std::vector<std::size_t> ranks;  // one of each class
  for (const DeviceClass& each : classes.all) ranks.push_back(static_cast<std::size_t>(each.rank));
  program::Program program = synth::lower_some_ranks(
      study.graph(), sharding, study.space().rules, ranks, study.question().lowering, accumulation);
  ExchangeTimes& exchanges = study.exchanges(devices);
  sharding.exchanges = synth::choose_methods(
      program, [&](std::string_view name, double bytes) { return exchanges.at(name, bytes); });
  MOTLEY_RETURN_IF_ERROR(synth::set_methods(program, sharding.exchanges));
  const cost::ProfileCost& model = study.model();
  MOTLEY_ASSIGN(const auto times, model.times(program));
  std::vector<Bytes> peaks;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const Bytes tensors = program::find_memory_peak(program.devices[r], times[r].scratch).total;
    peaks.push_back(cost::with_framework(study.device(devices[ranks[r]]), tensors));
  }
  MOTLEY_ASSIGN(
      const trace::Trace trace,
      simulate::simulate(program, GroupCost(model, sharding.devices, known_times(program, times))));
  const std::vector<double> compute = compute_of(trace);
  SpmdPlan plan{devices, std::move(sharding), trace::median_step(trace), {}, {}, {}};
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    plan.compute.push_back(compute[classes.of_rank[rank]]);
    plan.peaks.push_back(peaks[classes.of_rank[rank]]);
    note_lack(study, rank, plan);
  }
  return plan;
}

/// Goes on by the line through a plan priced in one micro-batch less, or through nothing where that
/// lacked memory already.
void add_micro_batches(const SpmdStudy& study, std::int64_t more,
                       const std::optional<SpmdPlan>& shorter, SpmdPlan& plan) {
  const double added = static_cast<double>(more);
  const auto times = static_cast<double>(plan.sharding.micro_batches);
  plan.step += added * (shorter ? plan.step - shorter->step : plan.step * (1 / times));
  plan.lack = Bytes(0);
  for (std::size_t rank = 0; rank < plan.devices.size(); ++rank) {
    double& compute = plan.compute[rank];
    compute += added * (shorter ? compute - shorter->compute[rank] : compute / times);
    if (shorter) plan.peaks[rank] += more * (plan.peaks[rank] - shorter->peaks[rank]);
    note_lack(study, rank, plan);
  }
  plan.sharding.exchanges.clear();
}

}  // namespace

bool SpmdPlan::is_better_than(const SpmdPlan& other, double by) const {
  if (fits() != other.fits()) return fits();
  if (fits()) return step < other.step * (1 - by);
  return static_cast<double>(lack.value) < static_cast<double>(other.lack.value) * (1 - by);
}

Result<SpmdPlan> price_sharding(SpmdStudy& study, const std::vector<DeviceId>& devices,
                                synth::Sharding sharding) {
  const std::vector<synth::Accumulation>& made = study.accumulations();
  if (made.empty()) return price_program(study, devices, std::move(sharding), nullptr);
  const std::int64_t times = sharding.micro_batches;
  std::optional<SpmdPlan> shorter, plan;
  for (const synth::Accumulation& each : made) {
    shorter = std::exchange(plan, std::nullopt);
    sharding.micro_batches = each.micro_batches;
    MOTLEY_ASSIGN(plan, price_program(study, devices, sharding, &each));
    if (!plan->fits()) break;  // nor will more of them
  }
  const std::int64_t more = times - sharding.micro_batches;
  if (more > 0) add_micro_batches(study, more, shorter, *plan);
  plan->sharding.micro_batches = times;
  return *std::move(plan);
}

Result<SpmdPlan> price_in_full(SpmdStudy& study, const std::vector<DeviceId>& devices,
                               synth::Sharding sharding) {
  MOTLEY_ASSIGN(const auto made, synth::find_accumulation(study.graph(), sharding));
  return price_program(study, devices, std::move(sharding), made ? &*made : nullptr);
}

}  // namespace motley::search
