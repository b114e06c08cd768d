#include "motley/search/price/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/cluster/kinds.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/cost/operators/batch_curves.h"
#include "motley/cost/operators/carried_times.h"
#include "motley/cost/operators/kind_times.h"
#include "motley/cost/operators/least_times.h"
#include "motley/cost/operators/operator_model.h"
#include "motley/program/parts.h"
#include "motley/search/price/device_pools.h"
#include "motley/search/price/profile_batches.h"

namespace motley::search {
namespace {

using cost::DeviceKey;
using cost::InstructionTimes;

std::int64_t largest_batch(const graph::Graph& graph, std::int64_t global_batch) {
  return graph.sizes.empty() ? global_batch : std::min(global_batch, graph.sizes[0].max);
}

tl::unexpected<Error> not_profiled(const graph::Model& model, const DeviceKey& key,
                                   const std::string& found, std::int64_t wanted) {
  return usage_error(
      "search.missing-profile",
      fmt::format("model '{}' has {} on {} with threads = {} and PyTorch {}, wanted up to batch "
                  "{}; run `motley profile -m MODEL -C CLUSTER --global-batch {}`",
                  model.graph.name, found, key.kind, key.threads, key.torch, wanted, wanted));
}

/// Times of one device key, and their origin.
struct Table {
  std::shared_ptr<const InstructionTimes> times;
  cost::Grounds grounds;
  std::shared_ptr<const cost::TimeSource> source = nullptr;    // for any program of the model
  std::shared_ptr<const cost::TimeSource> measured = nullptr;  // measured times only
  std::shared_ptr<const cost::WorkTimes> by_work = nullptr;    // null: too few measurements
  std::shared_ptr<const cost::WorkTimes> least = nullptr;      // set if by_work is set

  cost::ProfileCost::SettingTimes of_setting() const { return {times, source, measured}; }
};

/// State shared by the loading of all tables; caches lowered programs.
struct Loading {
  const graph::Model& model;
  std::shared_ptr<const graph::Graph> graph;  // the model's; shared with the loaded tables
  const cost::ProfileStore& store;
  const CostOptions& options;
  /// The model lowered at some batches, alone or as one of two; independent of the device kind.
  EqualPrograms& programs;
  std::vector<EqualPrograms::Programs> lowered = {};  // programs that other members point to
  /// by program: the work of its instructions
  std::map<const program::DeviceProgram*, std::vector<cost::OperatorWork>> works = {};
};

/// Times of lowered programs by work, which is computed once for all device kinds.
class OfReferences : public cost::TimeSource {
 public:
  OfReferences(Loading& loading, const cost::WorkTimes& by_work)
      : loading_(loading), by_work_(by_work) {}
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override {
    const auto [works, is_new] = loading_.works.try_emplace(&program);
    if (is_new) works->second = cost::instruction_work(program, *loading_.graph);
    return by_work_.times(program, works->second);
  }

 private:
  Loading& loading_;
  const cost::WorkTimes& by_work_;
};

Result<EqualPrograms::Programs> load_times(Loading& loading, const DeviceKey& key,
                                           const std::vector<std::int64_t>& batches, int ranks,
                                           const cost::TimeSource& source, Table& table) {
  MOTLEY_ASSIGN(auto references,
                loading.programs.find(*loading.graph, batches, ranks, loading.options.lowering));
  loading.lowered.push_back(references);
  MOTLEY_ASSIGN(auto times, InstructionTimes::build(*references, source, key));
  table.times = std::make_shared<const InstructionTimes>(std::move(times));
  return references;
}

/// Prefers the table's times for known instructions, in any program; none is below `least`.
void prefer_table(const std::vector<program::DeviceProgram>& references, Table& table) {
  const auto at = [times = table.times](std::size_t instruction, double batch) {
    return cost::TimeSource::Answer{times->at(instruction, batch),
                                    times->scratch_at(instruction, batch)};
  };
  const auto curves = std::make_shared<cost::BatchCurves>(references, at);
  table.source = std::make_shared<cost::FirstKnown>(curves, table.source);
  if (table.least) table.source = std::make_shared<cost::AtLeast>(table.source, table.least);
  if (table.measured) table.measured = std::make_shared<cost::FirstKnown>(curves, table.measured);
}

/// Adds times by work, fitted to measured operators of any model, and their lower bounds.
void model_operators(const Loading& loading, const cost::OperatorModel& fitted, Table& table) {
  using Estimate = cost::ModelledTimes::Estimate;
  table.by_work = std::make_shared<cost::ModelledTimes>(loading.graph, fitted);
  table.least = std::make_shared<cost::ModelledTimes>(loading.graph, fitted, Estimate::kLeast);
}

/// Returns the key with this many neighbours: "cpu beside 2" (cost::shared_key).
DeviceKey beside(const DeviceKey& key, const std::string& alone, int neighbours) {
  DeviceKey other = key;
  other.kind = neighbours == 0 ? alone : fmt::format("{} beside {}", alone, neighbours);
  return other;
}

/// Returns the operators of an emulated device among its neighbours. If that number of neighbours
/// was not measured, uses the nearest measured number; otherwise returns what there is, too little.
Result<std::vector<cost::OpEntry>> ops_among_others(const cost::ProfileStore& store,
                                                    const DeviceKey& key) {
  constexpr std::string_view kBeside = " beside ";
  constexpr int kFarthest = 8;
  const std::size_t at = key.kind.rfind(kBeside);
  const std::string alone = key.kind.substr(0, std::min(at, key.kind.size()));
  const int wanted =
      at == std::string::npos
          ? 0
          : static_cast<int>(find_integer(key.kind.substr(at + kBeside.size())).value_or(0));
  for (int away = 0; away <= kFarthest; ++away)
    for (const int neighbours : {wanted - away, wanted + away}) {
      if (neighbours < 0) continue;
      MOTLEY_ASSIGN(auto entries, store.ops(beside(key, alone, neighbours)));
      if (cost::OperatorModel::fit(entries)) return entries;
    }
  return store.ops(key);
}

/// Models a device by the times of other models' operators on it.
Result<Table> model_device(Loading& loading, const DeviceKey& key,
                           const std::vector<std::int64_t>& batches, int ranks) {
  MOTLEY_ASSIGN(const auto entries, ops_among_others(loading.store, key));
  auto fitted = cost::OperatorModel::fit(entries);
  if (!fitted)
    return with_context(
        fmt::format("{} with threads = {} and PyTorch {}", key.kind, key.threads, key.torch),
        fitted.error());
  Table table;
  model_operators(loading, *fitted, table);
  table.source = std::make_shared<cost::FirstKnown>(std::make_shared<cost::MeasuredTimes>(entries),
                                                    table.by_work);
  table.grounds = {cost::Origin::kModelled, "modelled from what other models took there"};
  MOTLEY_ASSIGN(const auto references,
                load_times(loading, key, batches, ranks, *table.source, table));
  prefer_table(*references, table);
  return table;
}

Result<Table> load_device(Loading& loading, const DeviceKey& key, int ranks) {
  const graph::Model& model = loading.model;
  const CostOptions& options = loading.options;
  const std::int64_t wanted = largest_batch(model.graph, options.global_batch);
  MOTLEY_ASSIGN(auto batches,
                loading.store.batches(profile_subject(model.hash, options.lowering), key));
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  const bool is_enough = !batches.empty() && batches.back() >= wanted;
  if (!is_enough && options.may_model)
    return model_device(loading, key, profile_batches(options.global_batch, wanted), ranks);
  if (batches.empty()) return not_profiled(model, key, "no profile", wanted);
  if (!is_enough)
    return not_profiled(model, key, fmt::format("a profile up to batch {}", batches.back()),
                        wanted);
  MOTLEY_ASSIGN(const auto entries, loading.store.ops(key));
  Table table;
  const auto measured = std::make_shared<cost::MeasuredTimes>(entries);
  table.source = table.measured = measured;
  if (const auto fitted = cost::OperatorModel::fit(entries)) {
    model_operators(loading, *fitted, table);
    table.source = std::make_shared<cost::FirstKnown>(measured, table.by_work);
  }
  MOTLEY_ASSIGN(const auto references, load_times(loading, key, batches, ranks, *measured, table));
  prefer_table(*references, table);
  return table;
}

/// The keys, batches and kinds of devices on which the model was profiled up to the wanted batch.
struct ProfiledKinds {
  std::vector<DeviceKey> keys;
  std::vector<std::vector<std::int64_t>> batches;
  std::vector<cluster::PlanningKind> kinds;
};

Result<ProfiledKinds> profiled_kinds(const Loading& loading) {
  const auto& [model, graph, store, options, programs, lowered, works] = loading;
  const std::string subject = profile_subject(model.hash, options.lowering);
  const std::string torch = cost::device_key({}, options.torch).torch;
  ProfiledKinds profiled;
  MOTLEY_ASSIGN(const auto devices, store.profiled_devices(subject));
  for (const DeviceKey& key : devices) {
    const auto kind = cluster::kind_of_model(key.kind);
    if (!kind || key.torch != torch) continue;
    MOTLEY_ASSIGN(auto batches, store.batches(subject, key));
    if (batches.back() < largest_batch(model.graph, options.global_batch)) continue;
    profiled.keys.push_back(key);
    profiled.batches.push_back(std::move(batches));
    profiled.kinds.push_back(*kind);
  }
  return profiled;
}

/// Builds the table of a device kind not present here: from another kind, else its specifications.
Result<Table> kind_table(Loading& loading, const cluster::PlanningKind& kind, const DeviceKey& key,
                         int ranks) {
  MOTLEY_ASSIGN(const ProfiledKinds profiled, profiled_kinds(loading));
  const std::int64_t wanted = largest_batch(loading.model.graph, loading.options.global_batch);
  std::vector<std::int64_t> batches = profile_batches(loading.options.global_batch, wanted);
  Table table;
  table.by_work = std::make_shared<cost::KindTimes>(loading.graph, kind);
  table.source = table.least = table.by_work;
  table.grounds = {cost::Origin::kKinds, "figures of " + std::string(kind.name)};
  if (const auto* nearest = cost::nearest_kind(kind, profiled.kinds)) {
    const auto i = static_cast<std::size_t>(nearest - profiled.kinds.data());
    MOTLEY_ASSIGN(const auto entries, loading.store.ops(profiled.keys[i]));
    batches = profiled.batches[i];
    table.source = std::make_shared<cost::FirstKnown>(
        std::make_shared<cost::CarriedTimes>(loading.graph, entries, *nearest, kind),
        table.by_work);
    table.grounds = {cost::Origin::kCarried, "carried from " + profiled.keys[i].kind};
  }
  if (table.source == table.by_work) {
    const OfReferences source(loading, *table.by_work);
    MOTLEY_RETURN_IF_ERROR(load_times(loading, key, batches, ranks, source, table));
    return table;
  }
  MOTLEY_ASSIGN(const auto references,
                load_times(loading, key, batches, ranks, *table.source, table));
  table.least =
      std::make_shared<cost::LeastTimes>(loading.graph, table.by_work, *references, *table.source);
  prefer_table(*references, table);
  return table;
}

/// A device's pace among its neighbours and the variation of its steps. Emulated devices that share
/// a machine lose a few percent, as measured.
struct Tempo {
  cost::Pace pace;
  Seconds pause;
  simulate::Jitter jitter;
};

/// Independent variation of instructions adds up to sd^2 sum t^2 / (sum t)^2 of a step; the rest of
/// whole steps' variation is common to all their instructions.
simulate::Jitter find_jitter(const InstructionTimes& times, double step_spread) {
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double seconds = times.at(i, times.batches().back()).value;
    sum += seconds;
    squares += seconds * seconds;
  }
  const double own = kMadToDeviation * times.spread(), step = kMadToDeviation * step_spread;
  const double summed = sum > 0 ? own * own * squares / (sum * sum) : 0;
  return {.per_instruction = own, .per_step = std::sqrt(std::max(0.0, step * step - summed))};
}

Result<Tempo> find_tempo(const graph::Model& model, const cluster::Cluster& cluster,
                         const cost::ProfileStore& store, const CostOptions& options, DeviceId id,
                         const InstructionTimes& times) {
  const double speed = cluster.device(id).speed;
  if (!cost::has_pace(cluster, id)) return Tempo{cost::Pace(speed), {}, {}};
  const DeviceKey key = cost::emulated_key(cluster, id, options.torch);
  const std::string subject = profile_subject(model.hash, options.lowering);
  MOTLEY_ASSIGN(const auto steps, cost::find_steps(store, key, subject));
  MOTLEY_ASSIGN(const Seconds pause, cost::find_pause(store, key, subject));
  if (steps.empty() && options.may_model) {
    MOTLEY_ASSIGN(const auto usual, cost::usual_pace(store, key));
    return Tempo{cost::Pace(usual.value_or(speed)), pause, {}};
  }
  if (steps.empty())
    return not_profiled(model, key, "no profile",
                        cost::usual_samples(cluster, id, options.global_batch));
  std::vector<cost::Pace::Sample> samples;
  double spread = 0;  // of whole steps
  for (const cost::StepTime& step : steps) {
    const Seconds compute = times.total(static_cast<double>(step.samples));
    samples.push_back({compute, compute / step.seconds});
    spread += step.spread / static_cast<double>(steps.size());
  }
  return Tempo{cost::Pace(std::move(samples)), pause, find_jitter(times, spread)};
}

/// Returns a device's times at its pace; devices with one constant pace share tables. The pace was
/// measured beside others relative to operators beside others that were not slowed. So it may
/// exceed the emulated speed (`most_alone`), which still limits a device alone.
cost::ProfileCost::DeviceTimes paced(const Table& alone, const Table& shared,
                                     const cost::Pace& pace, std::optional<double> most_alone) {
  cost::ProfileCost::DeviceTimes times;
  times.pace = pace;
  times.most_alone = most_alone;
  times.is_paced = !pace.is_constant() || (most_alone && pace.fastest() > *most_alone);
  times.alone = alone.of_setting();
  times.shared = shared.of_setting();
  if (!times.is_paced) return times;
  const cost::Pace own = most_alone ? pace.at_most(*most_alone) : pace;
  times.alone.table = std::make_shared<const InstructionTimes>(times.alone.table->slowed(own));
  times.shared.table = std::make_shared<const InstructionTimes>(times.shared.table->slowed(pace));
  return times;
}

/// Returns times by work for searches, at the pace of the device's usual part.
Costs::ByWork by_work(const Table& alone, const Table& shared, const cost::Pace& pace,
                      std::int64_t samples) {
  const Seconds compute = shared.times->total(static_cast<double>(samples));
  return {shared.by_work, pace.at(compute), shared.least, alone.least, pace.fastest()};
}

/// A group whose exchange was not measured.
struct UnknownExchange {
  std::string route, backend;
  std::vector<DeviceId> group;
  int ranks() const { return static_cast<int>(group.size()); }
};

/// Assumes a time unless a ring of the measured number of ranks gives one: by the cluster's links
/// or, within a machine, by the fastest measured route. Returns a note, or "" if nothing is known.
std::string assume_exchange(const UnknownExchange& unknown, const cost::ProfileCost& model,
                            cost::CollectiveTimes& times) {
  constexpr Bytes kUsual(1 << 20);
  constexpr auto kSize = static_cast<double>(kUsual.value);
  const auto take = [&](cost::Affine line) {
    times.assume(program::kAllReduce, unknown.route, unknown.ranks(), unknown.backend, line);
  };
  const auto curves = model.curves_by_links(program::kAllReduce, unknown.group);
  const auto by_links =
      std::min_element(curves.begin(), curves.end(),
                       [](const auto& a, const auto& b) { return a.at(kSize) < b.at(kSize); });
  if (by_links != curves.end() && by_links->fewer.large.seconds_per_byte > 0) {
    take(by_links->fewer.large);
    return "what the links say";
  }
  const auto best = times.fastest(program::kAllReduce, unknown.ranks(), unknown.backend, kUsual);
  if (!best) return "";
  take(best->piece(kSize));
  return "as long as by the fastest way that was measured";
}

/// Models unmeasured exchanges that plans may need. Unknown ones fail when they are queried.
void model_exchanges(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices,
                     Costs& costs) {
  const cost::ProfileCost model(cluster, costs.devices, costs.collectives);
  const auto is_known = [&](const UnknownExchange& each) {
    return costs.collectives.curve(program::kAllReduce, each.route, each.ranks(), each.backend)
        .has_value();
  };
  std::vector<UnknownExchange> unknown;
  for (auto& group : groups_to_measure(cluster, devices)) {
    UnknownExchange each{cost::route_key(cluster, group), cost::backend_key(cluster, group), group};
    if (!model.is_planned_only(group) && !is_known(each)) unknown.push_back(std::move(each));
  }
  if (unknown.empty()) return;
  costs.collectives.reach(static_cast<int>(devices.size()));
  for (const UnknownExchange& each : unknown) {
    const std::string by = is_known(each) ? "what a ring among as many as were measured would"
                                          : assume_exchange(each, model, costs.collectives);
    if (!by.empty())
      costs.modelled.push_back(fmt::format("exchanges among {} ranks over {} by route {} take {}",
                                           each.ranks(), each.backend, each.route, by));
  }
}

/// Notes devices whose times are modelled, by method; without names if all are.
void say_modelled(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices,
                  Costs& costs) {
  std::map<std::string, std::vector<std::string>> by_grounds;
  for (const DeviceId id : devices) {
    const std::string& name = cluster.device(id).name;
    const cost::Grounds& grounds = costs.grounds.at(name);
    if (grounds.origin == cost::Origin::kModelled) by_grounds[grounds.text].push_back(name);
  }
  for (const auto& [text, names] : by_grounds)
    costs.modelled.push_back(
        fmt::format("operators{} are {}",
                    names.size() == devices.size() ? "" : " of " + join(names, ", "), text));
}

std::vector<cost::InterferenceEntry> entries_of(const std::vector<cost::InterferenceEntry>& all,
                                                const DeviceKey& key) {
  std::vector<cost::InterferenceEntry> found;
  for (const cost::InterferenceEntry& entry : all)
    if (entry.device == key) found.push_back(entry);
  return found;
}

}  // namespace

std::string profile_subject(const std::string& model_hash, const synth::LowerOptions& lowering) {
  const bool is_portable = lowering.updates == plan::Updates::kPortable;
  return fmt::format("{}/{}/{}-batch-norm/{}{}", model_hash,
                     plan::print_update_kind(lowering.recipe),
                     plan::batch_norm_name(lowering.batch_norm), lowering.bucket_bytes.value,
                     is_portable ? "/portable" : "");
}

Result<Costs> load_costs(const graph::Model& model, const cluster::Cluster& cluster,
                         const cost::ProfileStore& store, const CostOptions& options) {
  Costs costs;
  costs.programs = options.programs ? options.programs : std::make_shared<EqualPrograms>();
  Loading loading{model, std::make_shared<const graph::Graph>(model.graph), store, options,
                  *costs.programs};
  std::map<std::pair<DeviceKey, int>, Table> tables;
  const auto find_table = [&](const DeviceKey& key, const cluster::PlanningKind* kind,
                              int ranks) -> Result<const Table*> {
    Table& table = tables[{key, ranks}];
    if (table.times) return &table;
    MOTLEY_ASSIGN(table, kind != nullptr ? kind_table(loading, *kind, key, ranks)
                                         : load_device(loading, key, ranks));
    return &table;
  };
  const int sharing = synth::replicas_that_share(model.graph, options.lowering.batch_norm);
  MOTLEY_ASSIGN(const auto interference, store.interference());
  for (const DeviceId id : options.devices) {
    const cluster::Device& device = cluster.device(id);
    const auto known = cluster::find_kind(device.kind);  // "cpu" and "cuda" have none
    const cluster::PlanningKind* kind = known ? &*known : nullptr;
    MOTLEY_ASSIGN(const Table* alone, find_table(cost::device_key(device, options.torch), kind, 1));
    MOTLEY_ASSIGN(const Table* shared,
                  find_table(cost::shared_key(cluster, id, options.torch), kind, sharing));
    costs.grounds[device.name] =
        alone->grounds.origin < shared->grounds.origin ? shared->grounds : alone->grounds;
    costs.full_speed[device.name] = shared->times;
    MOTLEY_ASSIGN(const Tempo tempo,
                  find_tempo(model, cluster, store, options, id, *shared->times));
    if (tempo.jitter != simulate::Jitter{}) costs.jitter[device.name] = tempo.jitter;
    // A pace describes whole steps among busy neighbours.
    const bool has_pace = cost::has_pace(cluster, id);
    auto times =
        paced(*alone, *shared, tempo.pace, has_pace ? std::optional(device.speed) : std::nullopt);
    times.pause = tempo.pause;
    if (!has_pace)
      times.interference = entries_of(interference, cost::device_key(device, options.torch));
    if (alone->by_work && shared->by_work)
      costs.by_work[device.name] = by_work(*alone, *shared, tempo.pace,
                                           cost::usual_samples(cluster, id, options.global_batch));
    costs.devices.emplace(device.name, std::move(times));
  }
  MOTLEY_ASSIGN(costs.collectives, cost::CollectiveTimes::build(store));
  if (options.may_model) {
    say_modelled(cluster, options.devices, costs);
    model_exchanges(cluster, options.devices, costs);
  }
  MOTLEY_ASSIGN(costs.earlier, store.predictions());
  return costs;
}

}  // namespace motley::search
