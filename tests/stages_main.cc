// Test tool: small drawn questions of the search for plans of stages and what it answers, as JSON,
// for an oracle of integer programs (tests/test_stage_oracle.py).
//   stages_tool COUNT SEED [mixed]
// mixed: of hosts with several kinds of devices, which may share a stage.
// Each: "devices" by pool, "samples" wanted, "most_replicas"; "offers" [{"devices", "seconds",
// "full_seconds"}]: of all shapes that need these devices the least time, by the model of a
// replica, for 1, 2, ... samples (null: memory holds no more), and the same of replicas that the
// space has (has_full_ends); "asked" [{"seconds", "possible", "worth"}]: are so many samples
// possible in the time, replicas in fractions, and what the devices are worth at the prices of the
// proof; "chosen" {"seconds", "samples"}: what whole replicas do in that time; "bound_s", "step_s"
// (null: nothing fits), "apart_step_s" of the best plan found whose devices have a stage each, as
// the offers are (null: none is known).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string_view>
#include <vector>

#include "motley/base/json.h"
#include "motley/search/stages/shapes/sample_bound.h"
#include "motley/search/stages/shapes/whole_replicas.h"
#include "motley/search/stages/stage_search.h"
#include "motley/testing/all_shapes.h"
#include "motley/testing/table_stage_costs.h"

namespace {

using namespace motley;

constexpr std::size_t kLayers = 5;
constexpr int kMostDevices = 9;  // in three pools of up to three: too many to prove all plans

/// Least seconds of 1, 2, ... samples; infinite where no shape holds so many.
struct Least {
  std::vector<double> seconds, full;
};
/// By devices of each pool.
using Offers = std::map<std::vector<int>, Least>;

bool has_full_ends(const search::ReplicaShape& shape, std::int64_t samples) {
  search::StageReplica replica;
  replica.stages.resize(shape.stages.size());
  replica.micro_batch = shape.micro_batch;
  replica.samples = samples;
  return search::has_full_ends(replica);
}

Offers find_offers(const search::ShapeSearch& shapes, std::int64_t samples) {
  const search::StageCosts& costs = shapes.sums().costs();
  Offers offers;
  for (const search::ReplicaShape& shape : all_shapes(costs)) {
    const std::vector<int> devices = shapes.devices(shape);
    bool is_within = true;
    for (std::size_t p = 0; p < devices.size(); ++p)
      is_within = is_within && devices[p] <= costs.pools()[p].devices;
    const std::int64_t most = is_within ? shapes.most_samples(shape, INFINITY, samples) : 0;
    if (most == 0) continue;
    Least& least = offers[devices];
    least.seconds.resize(static_cast<std::size_t>(samples), INFINITY);
    least.full.resize(static_cast<std::size_t>(samples), INFINITY);
    for (std::int64_t n = 1; n <= most; ++n) {
      const double seconds = shapes.seconds(shape, n);
      const auto at = static_cast<std::size_t>(n - 1);
      least.seconds[at] = std::min(least.seconds[at], seconds);
      if (has_full_ends(shape, n)) least.full[at] = std::min(least.full[at], seconds);
    }
  }
  return offers;
}

std::int64_t samples_within(const Least& least, double seconds) {
  std::int64_t most = 0;
  for (std::size_t n = 0; n < least.seconds.size(); ++n)
    if (least.seconds[n] <= seconds) most = static_cast<std::int64_t>(n + 1);
  return most;
}

Json answer(const search::ShapeSearch& shapes, double seconds, std::int64_t samples,
            const std::vector<int>& devices) {
  search::ShapeColumns columns;
  search::SampleBound bound(shapes, columns, kMostDevices);
  const search::SampleAnswer found = bound.ask(seconds, samples);
  double worth = kMostDevices * (found.prices.empty() ? 0 : found.prices.back());
  for (std::size_t p = 0; p < devices.size() && p < found.prices.size(); ++p)
    worth += devices[p] * found.prices[p];
  return {{"seconds", seconds}, {"possible", found.is_possible}, {"worth", worth}};
}

Json find_apart(const search::StageOutcome& outcome) {
  std::vector<search::PricedStagePlan> plans = outcome.runner_ups;
  if (outcome.best) plans.push_back(*outcome.best);
  double least = INFINITY;
  for (const search::PricedStagePlan& each : plans)
    if (!search::is_interleaved(each.plan)) least = std::min(least, each.price.step.value);
  return std::isfinite(least) ? Json(least) : Json(nullptr);
}

enum class Hosts { kIdentical, kMixed };

Result<Json> draw_question(std::mt19937_64& random, Hosts hosts) {
  const TableStageCosts costs = hosts == Hosts::kMixed
                                    ? random_mixed_costs(random, kLayers, kMostDevices)
                                    : random_stage_costs(random, kLayers, kMostDevices);
  const auto samples = static_cast<std::int64_t>(8 + random() % 24);
  MOTLEY_ASSIGN(const search::StageOutcome outcome,
                search::find_stage_plan({.costs = &costs, .global_batch = samples}));
  const search::StageSums sums(costs);
  const search::ShapeSearch shapes(sums, {});
  std::vector<int> devices;
  for (const search::DevicePool& pool : costs.pools()) devices.push_back(pool.devices);

  Json json = {{"devices", devices}, {"samples", samples}, {"most_replicas", kMostDevices}};
  const Offers offers = find_offers(shapes, samples);
  for (const auto& [uses, least] : offers)
    json["offers"].push_back(
        {{"devices", uses}, {"seconds", least.seconds}, {"full_seconds", least.full}});
  const double rates = search::rate_bound(sums, samples);
  for (const double factor : {1.1, 1.3, 1.6, 2.0, 3.0})
    json["asked"].push_back(answer(shapes, factor * rates, samples, devices));

  const double seconds = 2 * rates;
  std::vector<search::ShapeOffer> whole;
  for (const auto& [uses, times] : offers)
    if (const std::int64_t does = samples_within(times, seconds)) whole.push_back({does, uses});
  std::int64_t chosen = 0;
  const std::vector<int> counts = search::choose_replicas(whole, devices);
  for (std::size_t o = 0; o < whole.size(); ++o) chosen += counts[o] * whole[o].samples;
  json["chosen"] = {{"seconds", seconds}, {"samples", chosen}};
  json["bound_s"] = outcome.lower_bound.value;
  json["step_s"] = outcome.best ? Json(outcome.best->price.step.value) : Json(nullptr);
  json["apart_step_s"] = find_apart(outcome);
  return json;
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_mixed = argc == 4 && std::string_view(argv[3]) == "mixed";
  if (argc != 3 && !is_mixed) {
    fmt::print(stderr, "usage: stages_tool COUNT SEED [mixed]\n");
    return 2;
  }
  std::mt19937_64 random(static_cast<std::uint64_t>(std::atoll(argv[2])));
  Json questions = Json::array();
  for (int i = 0; i < std::atoi(argv[1]); ++i) {
    auto question = draw_question(random, is_mixed ? Hosts::kMixed : Hosts::kIdentical);
    if (!question) {
      fmt::print(stderr, "{}\n", question.error().message);
      return 1;
    }
    questions.push_back(std::move(*question));
  }
  fmt::print("{}\n", questions.dump());
  return 0;
}
