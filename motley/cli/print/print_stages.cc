#include "motley/cli/print/print_stages.h"

#include <fmt/format.h>

#include <map>
#include <tuple>

#include "motley/base/json.h"
#include "motley/base/text.h"

namespace motley::cli {
namespace {

using search::PlannedStage;
using search::PricedStagePlan;
using search::StageReplica;

/// Replicas that differ only in their places.
struct ReplicaGroup {
  std::size_t first;
  int count;
};

bool are_identical(const StageReplica& a, const StageReplica& b) {
  if (a.micro_batch != b.micro_batch || a.samples != b.samples || a.schedule != b.schedule ||
      a.stages.size() != b.stages.size() || a.seats != b.seats)
    return false;
  for (std::size_t s = 0; s < a.stages.size(); ++s)
    if (a.stages[s].first != b.stages[s].first || a.stages[s].unit != b.stages[s].unit)
      return false;
  return true;
}

std::vector<ReplicaGroup> group_replicas(const search::StagePlan& plan) {
  std::vector<ReplicaGroup> groups;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const ReplicaGroup& group) {
      return are_identical(plan.replicas[group.first], plan.replicas[r]);
    });
    if (known == groups.end())
      groups.push_back({r, 1});
    else
      ++known->count;
  }
  return groups;
}

/// Returns " of n0 to n11" if other hosts also have devices of the kind.
std::string zone_text(const search::DevicePool& pool) {
  return pool.zone.empty() ? "" : " of " + pool.zone;
}

std::string unit_text(const search::StageCosts& costs, std::size_t index) {
  const search::StageUnit& unit = costs.units()[index];
  return fmt::format("{} {}{}{}", unit.degree(), search::kinds_text(unit, costs),
                     zone_text(costs.pools()[unit.pool()]), unit.recomputes ? ", recomputes" : "");
}

std::string layers_text(const PlannedStage& stage) {
  return stage.end == stage.first + 1 ? std::to_string(stage.first)
                                      : fmt::format("{}-{}", stage.first, stage.end - 1);
}

std::string micro_batches_text(const StageReplica& replica) {
  const std::int64_t full = replica.samples / replica.micro_batch,
                     rest = replica.samples % replica.micro_batch;
  if (full == 0) return fmt::format("1 of {}", rest);
  return fmt::format("{} of {}{}", full, replica.micro_batch,
                     rest > 0 ? fmt::format(", 1 of {}", rest) : "");
}

/// Prints a line per unit with its ranges of layers: several for interleaved stages.
std::string plan_table(const PricedStagePlan& priced, const search::StageCosts& costs) {
  struct Line {
    std::string count, samples, micro, layers, busy, memory, devices;
  };
  std::vector<Line> lines = {
      {"replicas", "samples", "micro-batches", "layers", "busy", "memory", "devices"}};
  std::size_t width = 7;
  for (const ReplicaGroup& group : group_replicas(priced.plan)) {
    const StageReplica& replica = priced.plan.replicas[group.first];
    for (const std::vector<std::size_t>& stages : search::stages_by_seat(replica)) {
      const std::size_t s = stages.front();
      Seconds busy;
      std::string layers;
      for (const std::size_t of : stages) {
        busy += priced.price.spans[group.first][of].compute;
        layers += (layers.empty() ? "" : ", ") + layers_text(replica.stages[of]);
      }
      const std::string micro = fmt::format("{}, {}", micro_batches_text(replica),
                                            search::schedule_name(replica.schedule));
      lines.push_back({s == 0 ? std::to_string(group.count) : "",
                       s == 0 ? std::to_string(replica.samples) : "", s == 0 ? micro : "", layers,
                       fmt::format("{:.0f} %", 100 * (busy / priced.price.step)),
                       format_bytes(priced.price.spans[group.first][s].peak),
                       unit_text(costs, replica.stages[s].unit)});
      width = std::max(width, layers.size());
    }
  }
  std::string text;
  for (const auto& [count, samples, micro, layers, busy, memory, devices] : lines)
    text += fmt::format("  {:<9} {:<8} {:<26} {:<{}} {:>10} {:>10}  {}\n", count, samples, micro,
                        layers, width, busy, memory, devices);
  return text;
}

std::string summary(const PricedStagePlan& priced, const search::StageCosts& costs) {
  std::size_t least = priced.plan.replicas[0].stages.size(), most = least;
  for (const StageReplica& replica : priced.plan.replicas) {
    least = std::min(least, replica.stages.size());
    most = std::max(most, replica.stages.size());
  }
  std::string devices;
  const std::vector<int> used = search::used_devices(priced.plan, costs);
  for (std::size_t pool = 0; pool < used.size(); ++pool)
    devices += fmt::format("{}{} of {} {}{}", devices.empty() ? "" : ", ", used[pool],
                           costs.pools()[pool].devices, costs.pools()[pool].kind,
                           zone_text(costs.pools()[pool]));
  return fmt::format("{} {} of {} {}{}; {}", priced.plan.replicas.size(),
                     priced.plan.replicas.size() == 1 ? "replica" : "replicas",
                     least == most ? std::to_string(least) : fmt::format("{} to {}", least, most),
                     most == 1 ? "stage" : "stages",
                     search::is_interleaved(priced.plan) ? ", interleaved" : "", devices);
}

Json plan_to_json(const PricedStagePlan& priced, const search::StageCosts& costs) {
  Json replicas = Json::array();
  for (std::size_t r = 0; r < priced.plan.replicas.size(); ++r) {
    const StageReplica& replica = priced.plan.replicas[r];
    Json stages = Json::array();
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      const PlannedStage& stage = replica.stages[s];
      const search::StageUnit& unit = costs.units()[stage.unit];
      const search::StageSpan& span = priced.price.spans[r][s];
      stages.push_back({{"layers", {stage.first, stage.end - 1}},
                        {"kind", search::kinds_text(unit, costs)},
                        {"degree", unit.degree()},
                        {"recomputes", unit.recomputes},
                        {"host", costs.pools()[unit.pool()].first_host + stage.host},
                        {"first_device", stage.slot},
                        {"in_flight", span.in_flight},
                        {"compute_s", span.compute.value},
                        {"peak_bytes", span.peak.value}});
    }
    replicas.push_back({{"samples", replica.samples},
                        {"micro_batch", replica.micro_batch},
                        {"schedule", search::schedule_name(replica.schedule)},
                        {"stages", stages}});
  }
  return {{"step_s", priced.price.step.value},
          {"exchange_s", priced.price.exchange.value},
          {"replicas", replicas}};
}

}  // namespace

std::string print_stages(const control::StageAnswer& answer) {
  const search::StageOutcome& outcome = answer.outcome;
  const search::StageCosts& costs = *answer.costs;
  std::string text;
  if (outcome.best) {
    text =
        fmt::format("step {}; no plan takes less than {}: {:.1f} % at most to gain\n",
                    format_seconds(outcome.best->price.step), format_seconds(outcome.lower_bound),
                    100 * (1 - outcome.lower_bound / outcome.best->price.step));
    if (outcome.apart_bound)
      text += fmt::format("no plan whose devices have one stage each takes less than {}\n",
                          format_seconds(*outcome.apart_bound));
    text +=
        fmt::format("{}\n\n{}", summary(*outcome.best, costs), plan_table(*outcome.best, costs));
    text += fmt::format("\n{} of exchanging gradients after the last pass\n",
                        format_seconds(outcome.best->price.exchange));
    for (const PricedStagePlan& other : outcome.runner_ups)
      text += fmt::format("instead {}: +{:.1f} %\n", summary(other, costs),
                          100 * (other.price.step / outcome.best->price.step - 1));
    text +=
        fmt::format("{} shapes of replicas from {} programs over layers, {} plans simulated, {}\n",
                    outcome.shapes, outcome.programs, outcome.simulated,
                    format_seconds(Seconds(answer.elapsed_s)));
  } else {
    text = "no plan\n";
  }
  for (const std::string& why : outcome.why) text += why + "\n";
  return text;
}

Json stages_to_json(const control::StageAnswer& answer) {
  const search::StageOutcome& outcome = answer.outcome;
  Json runner_ups = Json::array();
  for (const PricedStagePlan& other : outcome.runner_ups)
    runner_ups.push_back(plan_to_json(other, *answer.costs));
  const char* reason = outcome.reason == search::StageReason::kOptimal    ? "optimal"
                       : outcome.reason == search::StageReason::kFeasible ? "feasible"
                                                                          : "infeasible";
  return {{"planner", "stages"},
          {"outcome", reason},
          {"plan", outcome.best ? plan_to_json(*outcome.best, *answer.costs) : Json(nullptr)},
          {"lower_bound_s", outcome.best ? Json(outcome.lower_bound.value) : Json(nullptr)},
          {"apart_bound_s",
           outcome.best && outcome.apart_bound ? Json(outcome.apart_bound->value) : Json(nullptr)},
          {"runner_ups", runner_ups},
          {"considered", outcome.shapes},
          {"simulated", outcome.simulated},
          {"elapsed_s", answer.elapsed_s},
          {"why", outcome.why}};
}

}  // namespace motley::cli
