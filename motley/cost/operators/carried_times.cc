#include "motley/cost/operators/carried_times.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>

namespace motley::cost {
namespace {

constexpr KindEfficiency kWithoutLaunch{.launch = Seconds(0)};

/// Returns the shortest measured kernel; 0 if there is none.
Seconds shortest_kernel(const std::vector<OpEntry>& entries) {
  std::optional<Seconds> shortest;
  for (const OpEntry& entry : entries)
    if (entry.work.launches > 0 && entry.median.value > 0)
      shortest = std::min(shortest.value_or(entry.median), entry.median);
  return shortest.value_or(Seconds(0));
}

double f16_rate(const cluster::PlanningKind& kind) {
  return cluster::peak_rate(kind, DType::kF16)->value;  // that of f32 if it has none
}

}  // namespace

Seconds carried_seconds(Seconds measured, Seconds launch, const KindRatio& figures, double share) {
  if (!(figures.here.value > 0)) return measured;
  const Seconds kept = std::min(measured, launch);
  const double longer = (measured - kept).value / figures.here.value;
  return kept + (share * longer + 1 - share) * figures.there;
}

double kind_distance(const cluster::PlanningKind& a, const cluster::PlanningKind& b) {
  return std::abs(std::log(f16_rate(a) / f16_rate(b)));
}

const cluster::PlanningKind* nearest_kind(const cluster::PlanningKind& wanted,
                                          std::span<const cluster::PlanningKind> measured) {
  const auto rank = [&](const cluster::PlanningKind& kind) {
    return std::tuple(kind_distance(wanted, kind), std::abs(wanted.year - kind.year));
  };
  const cluster::PlanningKind* nearest = nullptr;
  for (const cluster::PlanningKind& kind : measured) {
    const bool is_gpu_pair =
        wanted.processor == cluster::Processor::kGpu && kind.processor == cluster::Processor::kGpu;
    if (!is_gpu_pair || cluster::vendor_of(wanted) != cluster::vendor_of(kind)) continue;
    if (nearest == nullptr || rank(kind) < rank(*nearest)) nearest = &kind;
  }
  return nearest;
}

CarriedTimes::CarriedTimes(const std::shared_ptr<const graph::Graph>& graph,
                           const std::vector<OpEntry>& entries, const cluster::PlanningKind& here,
                           const cluster::PlanningKind& there)
    : measured_(entries),
      here_(graph, here, kWithoutLaunch),
      there_(graph, there, kWithoutLaunch),
      launch_(shortest_kernel(entries)),
      share_(here.name == there.name ? 1.0 : kCarriedShare) {}

std::vector<std::optional<TimeSource::Answer>> CarriedTimes::times(
    const program::DeviceProgram& program) const {
  const auto here = here_.times(program), there = there_.times(program);
  std::vector<std::optional<Answer>> answers = measured_.times(program);
  for (std::size_t i = 0; i < answers.size(); ++i)
    if (answers[i])
      answers[i]->seconds = carried_seconds(answers[i]->seconds, launch_,
                                            {here[i]->seconds, there[i]->seconds}, share_);
  return answers;
}

}  // namespace motley::cost
