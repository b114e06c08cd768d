#include "motley/search/region/random_region.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <utility>

#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/cost/profile_cost.h"
#include "motley/program/memory.h"
#include "motley/program/parts.h"
#include "motley/search/region/random_sharding.h"
#include "motley/synth/lower.h"
#include "motley/synth/ranks/accumulation.h"
#include "motley/synth/ranks/exchange_methods.h"
#include "motley/synth/ranks/sharded_plan.h"

namespace motley::search {
namespace {

constexpr int kTries = 20;
constexpr std::uint64_t kLargestShare = 8;
constexpr std::int64_t kMostMicroBatches = 4;

/// Draws devices and shares; one device in eight gets share 0.
synth::Sharding draw_shares(const plan::Problem& problem, SplitMix64& random) {
  std::vector<DeviceId> devices = problem.devices;
  for (std::size_t i = devices.size(); i > 1; --i)
    std::swap(devices[i - 1], devices[random.below(i)]);
  devices.resize(2 + random.below(devices.size() - 1));
  synth::Sharding sharding;
  for (const DeviceId device : devices) {
    sharding.devices.push_back(problem.cluster->device(device).name);
    const std::uint64_t share = random.below(8) == 0 ? 0 : 1 + random.below(kLargestShare);
    sharding.shares.push_back(static_cast<double>(share));
  }
  if (std::all_of(sharding.shares.begin(), sharding.shares.end(),
                  [](double share) { return share == 0; }))
    sharding.shares[random.below(sharding.shares.size())] = 1;
  return sharding;
}

/// Draws the micro-batches of a step: often one, else a divisor that the model supports.
std::int64_t draw_micro_batches(const plan::Problem& problem, const graph::Graph& graph,
                                SplitMix64& random) {
  if (random.below(2) == 0) return 1;
  std::vector<std::int64_t> fits;
  for (std::int64_t times = 2; times <= std::min(kMostMicroBatches, problem.global_batch); ++times)
    if (synth::accumulate(graph, problem.global_batch, times)) fits.push_back(times);
  return fits.empty() ? 1 : fits[random.below(fits.size())];
}

/// Fills in the region's memory and draws its exchange methods, hierarchical only with two levels.
Result<void> complete(const plan::Problem& problem, const graph::Graph& graph, SplitMix64& random,
                      RegionChoice& choice) {
  plan::Region& region = choice.region;
  const std::vector<int> one_class(region.devices.size());  // tensors have one size on all devices
  MOTLEY_ASSIGN(const synth::RankKinds kinds,
                synth::lower_kinds(
                    graph, make_region_plan(problem, region, choice.micro_batches, choice.turns),
                    *problem.cluster, one_class));
  std::vector<Bytes> tensors;
  for (const program::DeviceProgram& device : kinds.program.devices)
    tensors.push_back(program::find_memory_peak(device).total);
  for (std::size_t rank = 0; rank < region.devices.size(); ++rank)
    choice.peaks.push_back(cost::with_framework(problem.cluster->device(region.devices[rank]),
                                                tensors[kinds.of_rank[rank]]));
  const bool has_levels = cost::has_levels(*problem.cluster, region.devices);
  for (plan::ExchangeWay& way : synth::find_exchange_kinds(kinds.program)) {
    std::span<const ExchangeMethod> methods = program::methods_of(way.op);
    if (!has_levels && methods.back() == ExchangeMethod::kHierarchical)
      methods = methods.first(methods.size() - 1);
    way.method = methods[random.below(methods.size())];
    if (way.method != ExchangeMethod::kNative) region.exchanges.push_back(std::move(way));
  }
  return {};
}

std::string describe(const synth::Sharding& sharding, const plan::Region& region) {
  const auto split =
      std::count_if(region.operators.begin(), region.operators.end(),
                    [](const plan::OperatorSplit& each) { return each != plan::OperatorSplit{}; });
  const std::string times = sharding.micro_batches == 1
                                ? ""
                                : fmt::format(", in {} micro-batches", sharding.micro_batches);
  const std::string turns =
      sharding.turns == 1 ? "" : fmt::format(", {} of which take turns", sharding.turns);
  return fmt::format("drawn: {} share {} of {} operators {}, and keep parts of {} parameters{}{}",
                     join(sharding.devices, ", "), split, region.operators.size(),
                     fmt::join(sharding.shares, " : "), region.parameters.size(), times, turns);
}

}  // namespace

plan::Plan make_region_plan(const plan::Problem& problem, const plan::Region& region,
                            std::int64_t micro_batches, std::int64_t turns) {
  plan::Plan plan = plan::blank_plan(problem);
  plan.replicas = {{problem.global_batch, {region}, micro_batches, turns}};
  plan.batch_norm = plan::BatchNormMode::kGlobal;
  return plan;
}

std::vector<std::string> find_lacking(const cluster::Cluster& cluster,
                                      const std::vector<DeviceId>& devices,
                                      const std::vector<Bytes>& peaks) {
  std::vector<std::string> lacking;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const cluster::Device& device = cluster.device(devices[rank]);
    if (device.room() && peaks[rank] > *device.room())
      lacking.push_back(fmt::format("{} needs {}, has {}", device.name, format_bytes(peaks[rank]),
                                    format_bytes(*device.room())));
  }
  return lacking;
}

Result<std::optional<RegionChoice>> draw_region(const plan::Problem& problem,
                                                const graph::Graph& graph,
                                                std::vector<std::string>& why) {
  if (problem.global_batch < problem.min_samples || problem.global_batch > problem.max_samples) {
    why = {
        fmt::format("operators are split at the global batch, which is {}; the model's batches "
                    "are {} to {}",
                    problem.global_batch, problem.min_samples, problem.max_samples)};
    return std::nullopt;
  }
  SplitMix64 random(problem.seed);
  for (int attempt = 0; attempt < kTries; ++attempt) {
    synth::Sharding sharding = draw_shares(problem, random);
    sharding.micro_batches = draw_micro_batches(problem, graph, random);
    sharding.turns = 1 + static_cast<std::int64_t>(
                             random.below(static_cast<std::uint64_t>(sharding.micro_batches)));
    sharding.batch = problem.global_batch / sharding.micro_batches;
    draw_sharding(graph, random.next(), sharding);
    RegionChoice choice;
    choice.region = synth::make_region(graph, sharding, *problem.cluster);
    choice.micro_batches = sharding.micro_batches;
    choice.turns = sharding.turns;
    MOTLEY_RETURN_IF_ERROR(complete(problem, graph, random, choice));
    why = find_lacking(*problem.cluster, choice.region.devices, choice.peaks);
    if (!why.empty()) continue;
    why = {describe(sharding, choice.region)};
    return choice;
  }
  why.insert(
      why.begin(),
      fmt::format("{} ways to split the operators were drawn, none fits; of the last", kTries));
  return std::nullopt;
}

}  // namespace motley::search
