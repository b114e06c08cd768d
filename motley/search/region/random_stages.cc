#include "motley/search/region/random_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "motley/base/random.h"
#include "motley/cluster/cluster.h"
#include "motley/cost/device_keys.h"
#include "motley/program/memory.h"
#include "motley/search/region/random_region.h"
#include "motley/search/region/random_sharding.h"
#include "motley/synth/lower.h"
#include "motley/synth/ranks/accumulation.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/synth/ranks/sharding_rules.h"

namespace motley::search {
namespace {

constexpr int kMostDraws = 20;
constexpr std::uint64_t kMostReplicas = 3, kMostRegions = 4, kMostPasses = 4;

class StageDrawer {
 public:
  StageDrawer(const graph::Graph& graph, const StageRange& range, std::uint64_t seed)
      : graph_(graph), range_(range), random_(seed) {}

  DrawnStages run() {
    std::vector<DeviceId> devices = range_.devices;
    shuffle(devices);
    draw_replicas(devices.size());
    plan::Plan plan;
    plan.replicas = replicas_;
    if (!synth::accumulate_replicas(graph_, synth::find_passes(plan), range_.batch_norm_span))
      replicas_ = {{range_.global_batch, {}, 1}};
    std::size_t next = 0;
    for (std::size_t r = 0; r < replicas_.size(); ++r) {
      // Each replica has at least one device.
      const std::size_t left = devices.size() - next, after = replicas_.size() - r - 1;
      const std::size_t count = after == 0 ? left : 1 + below(left - after);
      const auto begin = devices.begin() + static_cast<std::ptrdiff_t>(next);
      draw_regions(replicas_[r], {begin, begin + static_cast<std::ptrdiff_t>(count)});
      next += count;
    }
    plan.owners = draw_owners();
    plan.replicas = std::move(replicas_);
    if (!plan::has_stages(plan)) plan.replicas.front().regions.front().turns = 1;
    return {std::move(plan.replicas), std::move(plan.owners)};
  }

 private:
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_.below(bound)); }
  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }

  void draw_replicas(std::size_t devices) {
    const std::int64_t least = std::max<std::int64_t>(1, range_.min_samples);
    const auto most =
        static_cast<std::size_t>(std::max<std::int64_t>(1, range_.global_batch / least));
    const std::size_t count = 1 + below(std::min<std::size_t>({kMostReplicas, devices, most}));
    std::int64_t left = range_.global_batch;
    for (std::size_t r = 0; r < count; ++r) {
      const auto after = static_cast<std::int64_t>(count - r - 1) * least;
      const std::int64_t samples =
          after == 0 ? left
                     : least + static_cast<std::int64_t>(
                                   below(static_cast<std::size_t>(left - after - least) + 1));
      const auto times = static_cast<std::size_t>(samples / least);
      replicas_.push_back(
          {samples,
           {},
           static_cast<std::int64_t>(1 + below(std::min<std::size_t>(kMostPasses, times)))});
      left -= samples;
    }
  }

  void draw_regions(plan::Replica& replica, const std::vector<DeviceId>& devices) {
    const std::size_t count = 1 + below(kMostRegions);
    const std::vector<std::size_t> of = draw_assignment(count);
    for (std::size_t g = 0; g < count; ++g) {
      plan::Region region;
      for (std::size_t i = 0; i < of.size(); ++i)
        if (of[i] == g) plan::append(region.covers, static_cast<std::int64_t>(i));
      if (region.covers.empty()) continue;
      if (below(2) == 0) region.ahead = static_cast<std::int64_t>(1 + below(kMostPasses));
      draw_recomputes(region);
      region.late_weights = below(2) == 0;
      replica.regions.push_back(std::move(region));
    }
    for (std::size_t g = 0; g < replica.regions.size(); ++g) draw_devices(replica, g, devices);
    if (replica.regions.size() == 1) replica.regions.front().covers.clear();
  }

  /// Draws owners of no, all, or about half of the parameters, the rest of these maybe of others.
  std::vector<plan::Owners> draw_owners() {
    std::vector<plan::Owners> owners;
    if (below(2) == 0) return owners;
    if (below(2) == 0) {
      owners.push_back({{"*"}, draw_shares()});
    } else {
      owners.resize(2);
      for (const ValueId id : values_with_role(graph_, graph::ValueRole::kParameter))
        owners[below(2)].parameters.push_back(graph_.value(id).name);
      for (plan::Owners& each : owners) each.shares = draw_shares();
      if (below(2) == 0) owners.pop_back();
    }
    std::erase_if(owners, [](const plan::Owners& each) {
      return each.parameters.empty() || each.shares.empty();
    });
    return owners;
  }

  /// Draws shares of all devices; none if all are 0.
  std::map<DeviceId, double> draw_shares() {
    std::map<DeviceId, double> shares;
    double all = 0;
    for (const plan::Replica& replica : replicas_)
      for (const plan::Region& region : replica.regions)
        for (const DeviceId device : region.devices)
          if (!shares.contains(device)) all += shares[device] = static_cast<double>(below(4));
    if (all == 0) shares.clear();
    return shares;
  }

  /// Recomputes nothing, everything or about half of the region.
  void draw_recomputes(plan::Region& region) {
    const std::size_t how = below(4);
    for (const plan::OpRange& range : region.covers)
      for (std::int64_t op = range.first; how < 2 && op < range.end; ++op)
        if (how == 0 || below(2) == 0) plan::append(region.recomputes, op);
  }

  std::vector<std::size_t> draw_assignment(std::size_t regions) {
    std::vector<std::size_t> of(graph_.ops.size(), 0);
    switch (below(3)) {
      case 0: {  // by ranges of the graph
        std::size_t at = 0;
        for (std::size_t i = 0; i < of.size(); ++i) {
          if (below(std::max<std::size_t>(2, of.size() / (2 * regions))) == 0) at = below(regions);
          of[i] = at;
        }
        break;
      }
      case 1: {  // a pipeline
        std::map<std::string, std::size_t> of_module;
        const std::size_t forward = static_cast<std::size_t>(std::count_if(
            graph_.ops.begin(), graph_.ops.end(),
            [](const graph::Op& op) { return op.direction == graph::Direction::kForward; }));
        std::size_t seen = 0;
        for (std::size_t i = 0; i < of.size(); ++i) {
          const graph::Op& op = graph_.ops[i];
          const bool is_forward = op.direction == graph::Direction::kForward;
          const std::size_t stage =
              std::min(regions - 1, seen * regions / std::max<std::size_t>(1, forward));
          if (is_forward) ++seen;
          of[i] = is_forward ? of_module.try_emplace(op.module, stage).first->second
                             : of_module.try_emplace(op.module, regions - 1).first->second;
        }
        break;
      }
      default:
        for (std::size_t& each : of) each = below(regions);
    }
    return of;
  }

  void draw_devices(plan::Replica& replica, std::size_t g, const std::vector<DeviceId>& devices) {
    plan::Region& region = replica.regions[g];
    region.devices = {devices[below(2) == 0 ? g % devices.size() : below(devices.size())]};
    region.shares = {1.0};
    if (devices.size() < 2 || below(3) != 0) return;
    // Several devices, none of them in another region, so that none has a parameter twice.
    std::vector<DeviceId> free;
    for (const DeviceId device : devices) {
      bool is_used = false;
      for (std::size_t other = 0; other < g; ++other) {
        const std::vector<DeviceId>& used = replica.regions[other].devices;
        is_used = is_used || std::find(used.begin(), used.end(), device) != used.end();
      }
      if (!is_used) free.push_back(device);
    }
    if (free.size() < 2 || g + 1 < replica.regions.size()) return;
    shuffle(free);
    free.resize(2 + below(free.size() - 1));
    share(replica, region, free);
  }

  /// Shares the region if the larger micro-batches can be cut as the smaller ones.
  void share(const plan::Replica& replica, plan::Region& region,
             const std::vector<DeviceId>& devices) {
    synth::Sharding sharding;
    for (const DeviceId device : devices) {
      sharding.devices.push_back(range_.cluster->device(device).name);
      sharding.shares.push_back(static_cast<double>(1 + below(4)));
    }
    sharding.batch = plan::find_stretches(replica, 0).back().count;
    draw_sharding(graph_, random_.next(), sharding);
    const plan::Region whole = synth::make_region(graph_, sharding, *range_.cluster);
    const std::vector<graph::ShardingRule> rules =
        synth::find_rules(graph_, plan::find_stretches(replica, 0).front().count);
    for (const plan::OpRange& range : region.covers)
      for (std::int64_t i = range.first; i < range.end; ++i) {
        const graph::ShardingRule& rule = rules[static_cast<std::size_t>(i)];
        const auto way = synth::find_strategy(rule, whole.operators[static_cast<std::size_t>(i)]);
        if (!way || !synth::can_lower(graph_, OpId(i), rule, *way, sharding.shares)) return;
      }
    region.devices = whole.devices;
    region.shares = whole.shares;
    region.parameters = whole.parameters;
    for (const plan::OpRange& range : region.covers)
      for (std::int64_t op = range.first; op < range.end; ++op)
        region.operators.push_back(whole.operators[static_cast<std::size_t>(op)]);
    region.turns = static_cast<std::int64_t>(1 + below(2));
  }

  const graph::Graph& graph_;
  const StageRange& range_;
  SplitMix64 random_;
  std::vector<plan::Replica> replicas_;
};

}  // namespace

DrawnStages draw_stages(const graph::Graph& graph, const StageRange& range, std::uint64_t seed) {
  return StageDrawer(graph, range, seed).run();
}

Result<std::optional<StagesChoice>> draw_fitting_stages(const plan::Problem& problem,
                                                        const graph::Graph& graph,
                                                        std::vector<std::string>& why) {
  const StageRange range{problem.cluster, problem.devices, problem.global_batch,
                         problem.min_samples, problem.batch_norm_span};
  SplitMix64 seeds(problem.seed);
  for (int attempt = 0; attempt < kMostDraws; ++attempt) {
    StagesChoice choice;
    choice.plan = plan::blank_plan(problem);
    DrawnStages drawn = draw_stages(graph, range, seeds.next());
    choice.plan.replicas = std::move(drawn.replicas);
    choice.plan.owners = std::move(drawn.owners);
    choice.plan.batch_norm = plan::BatchNormMode::kGlobal;
    MOTLEY_ASSIGN(const program::Program program,
                  synth::lower(graph, choice.plan, *problem.cluster));
    std::vector<DeviceId> devices;
    for (const plan::Member& member : plan::members(choice.plan)) devices.push_back(member.device);
    std::size_t regions = 0;
    for (const plan::Replica& replica : choice.plan.replicas) regions += replica.regions.size();
    for (std::size_t rank = 0; rank < devices.size(); ++rank)
      choice.peaks.push_back(
          cost::with_framework(problem.cluster->device(devices[rank]),
                               program::find_memory_peak(program.devices[rank]).total));
    why = find_lacking(*problem.cluster, devices, choice.peaks);
    if (!why.empty()) continue;
    why = {fmt::format("drawn: {} replicas cut into {} regions on {} devices",
                       choice.plan.replicas.size(), regions, devices.size())};
    return choice;
  }
  why.insert(why.begin(), fmt::format("{} ways to cut replicas into regions were drawn, none fits; "
                                      "of the last",
                                      kMostDraws));
  return std::nullopt;
}

}  // namespace motley::search
