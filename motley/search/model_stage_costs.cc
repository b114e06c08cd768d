#include "motley/search/model_stage_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "motley/cluster/kinds.h"
#include "motley/graph/reach.h"
#include "motley/graph/work.h"
#include "motley/program/effects.h"

namespace motley::search {
namespace {

/// A device without a limit.
constexpr Bytes kUnlimited{std::int64_t{1} << 50};

/// The value that owns a view's memory.
std::vector<ValueId> find_roots(const graph::Graph& graph) {
  std::vector<ValueId> roots;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    roots.push_back(id);
    const OpId producer = graph.values[v].producer;
    if (producer.is_none() || !graph::is_view(graph.op(producer).name)) continue;
    const auto* base = std::get_if<ValueId>(&graph.op(producer).arguments[0].value);
    if (base != nullptr) roots.back() = roots[base->index()];
  }
  return roots;
}

}  // namespace

Result<std::unique_ptr<ModelStageCosts>> ModelStageCosts::make(const graph::Graph& graph,
                                                               const plan::Problem& problem,
                                                               const Costs& costs) {
  std::unique_ptr<ModelStageCosts> made(new ModelStageCosts(graph, problem, costs));
  made->chain_ = graph::find_layer_chain(graph);
  made->find_pools();
  made->find_bytes();
  const std::int64_t most = std::min(problem.max_samples, problem.global_batch);
  for (std::int64_t batch = std::max<std::int64_t>(1, problem.min_samples); batch <= most;
       batch *= 2)
    made->micro_batches_.push_back(batch);
  bool has_times = false;
  for (std::size_t unit = 0; unit < made->units_.size(); ++unit)
    has_times = has_times ||
                (!made->micro_batches_.empty() && made->knows(unit, made->micro_batches_.front()));
  if (!has_times) return usage_error("search.stages", "no device has times of the model's layers");
  return made;
}

void ModelStageCosts::find_pools() {
  using Key = std::tuple<std::string, std::int64_t, double, int>;
  // By node and what its devices are: nodes that are alike are hosts of one pool.
  std::map<NodeId, std::map<Key, std::vector<DeviceId>>> nodes;
  for (const DeviceId id : problem_.devices) {
    const cluster::Device& device = problem_.cluster->device(id);
    const std::int64_t memory = device.memory.value_or(kUnlimited).value;
    nodes[device.node][{device.kind, memory, device.speed, device.threads}].push_back(id);
  }
  std::map<std::pair<std::string, Key>, std::size_t> pool_of;
  std::map<std::string, int> next_host;
  for (const auto& [node, kinds] : nodes) {
    std::string signature;
    for (const auto& [key, devices] : kinds)
      signature += fmt::format("{} {} {} {} {};", std::get<0>(key), std::get<1>(key),
                               std::get<2>(key), std::get<3>(key), devices.size());
    for (std::size_t i = 0; i < problem_.cluster->links.size(); ++i) {
      const auto& between = problem_.cluster->links[i].between;
      if (std::find(between.begin(), between.end(), node) != between.end())
        signature += fmt::format(" link {}", i);
    }
    for (const auto& [key, devices] : kinds) {
      const auto [found, is_new] = pool_of.try_emplace({signature, key}, pools_.pools.size());
      if (is_new) {
        DevicePool pool;
        pool.kind = problem_.cluster->device(devices.front()).kind;
        pool.per_host = static_cast<int>(devices.size());
        pool.memory = Bytes(std::get<1>(key));
        pools_.pools.push_back(pool);
        pools_.devices.emplace_back();
        units_.push_back({found->second, 1, false});
        held_.push_back(cost::with_framework(problem_.cluster->device(devices.front()), Bytes(0)));
      }
      pools_.pools[found->second].devices += static_cast<int>(devices.size());
      auto& all = pools_.devices[found->second];
      all.insert(all.end(), devices.begin(), devices.end());
    }
  }
  // Hosts of one signature are numbered together.
  std::map<std::string, int> first_host;
  int hosts = 0;
  for (const auto& [signed_key, pool] : pool_of) {
    const auto [first, is_new] = first_host.try_emplace(signed_key.first, hosts);
    if (is_new) hosts += pools_.pools[pool].hosts();
    pools_.pools[pool].first_host = first->second;
  }
}

DeviceId ModelStageCosts::device(std::size_t pool, int host, int slot) const {
  return pools_.devices[pool][static_cast<std::size_t>(host * pools_.pools[pool].per_host + slot)];
}

std::optional<Hop> ModelStageCosts::hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const {
  const auto [known, is_new] = hops_.try_emplace({from.pool, to.pool, reach, bytes.value});
  if (!is_new) return known->second;
  std::optional<std::pair<DeviceId, DeviceId>> ends;
  for (const DeviceId a : {pools_.devices[from.pool].front(), pools_.devices[from.pool].back()})
    for (const DeviceId b : {pools_.devices[to.pool].back(), pools_.devices[to.pool].front()}) {
      const bool is_same = problem_.cluster->device(a).node == problem_.cluster->device(b).node;
      if (a != b && is_same == (reach == HopReach::kSameHost) && !ends) ends = std::pair(a, b);
    }
  // Two devices of one host where a pool has more than its first and last.
  if (!ends && reach == HopReach::kSameHost)
    for (const DeviceId a : pools_.devices[from.pool])
      for (const DeviceId b : pools_.devices[to.pool])
        if (!ends && a != b && problem_.cluster->device(a).node == problem_.cluster->device(b).node)
          ends = std::pair(a, b);
  if (!ends) return std::nullopt;
  const std::vector<std::string> names = {problem_.cluster->device(ends->first).name,
                                          problem_.cluster->device(ends->second).name};
  const auto least = model_.collective_time("motley::send", Bytes(4), names);
  const auto all = model_.collective_time("motley::send", std::max(bytes, Bytes(8)), names);
  if (!least || !all) return std::nullopt;
  const double moving = std::max(all->value - least->value, 1e-12);
  known->second =
      Hop{*least, BytesPerSecond(static_cast<double>(std::max(bytes, Bytes(8)).value) / moving)};
  return known->second;
}

/// The best of what goes out to other hosts; where there are none, nothing leaves a host.
BytesPerSecond ModelStageCosts::host_rate(std::size_t pool) const {
  constexpr Bytes kLarge{64 << 20};
  double best = 0;
  for (std::size_t other = 0; other < pools_.pools.size(); ++other)
    for (const auto& each : {hop({pool, 1}, {other, 1}, HopReach::kOtherHost, kLarge),
                             hop({other, 1}, {pool, 1}, HopReach::kOtherHost, kLarge)})
      if (each) best = std::max(best, each->rate.value);
  return BytesPerSecond(best > 0 ? best : 1e15);
}

void ModelStageCosts::take_memory(std::size_t pool, double part) {
  Bytes& memory = pools_.pools[pool].memory;
  memory = Bytes(static_cast<std::int64_t>(static_cast<double>(memory.value) * part));
}

void ModelStageCosts::find_bytes() {
  const std::size_t count = chain_.names.size();
  bytes_.resize(count);
  parameter_elements_.assign(count, 0);
  const std::vector<ValueId> roots = find_roots(graph_);
  const graph::Reach live = graph::find_live(graph_);
  const std::int64_t one = std::max<std::int64_t>(1, problem_.min_samples);
  const graph::Sizes small{{"batch", one}}, large{{"batch", 2 * one}};
  const auto per_sample = [&](ValueId value) {
    const graph::Value& about = graph_.value(value);
    return (graph::value_bytes(about, large) - graph::value_bytes(about, small)) / one;
  };
  std::vector<std::set<std::size_t>> readers(graph_.values.size());  // layers, forward
  std::vector<char> is_saved(graph_.values.size(), 0);
  std::map<ValueId, std::set<std::size_t>> holders;  // of parameters
  std::vector<std::int64_t> largest(count, 0);
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    if (!live.holds(i)) continue;
    const graph::Op& op = graph_.ops[i];
    const std::size_t layer = chain_.of_op[i];
    const bool is_forward = op.direction == graph::Direction::kForward;
    std::int64_t touched = 0;
    graph::for_each_value(op.arguments, [&](ValueId value) {
      const ValueId root = roots[value.index()];
      if (graph_.value(root).role == graph::ValueRole::kParameter) holders[root].insert(layer);
      if (is_forward)
        readers[root.index()].insert(layer);
      else
        is_saved[root.index()] = 1;
      touched += per_sample(value);
    });
    for (const ValueId output : op.outputs) touched += per_sample(output);
    if (!is_forward) largest[layer] = std::max(largest[layer], touched);
  }
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const ValueId id(static_cast<std::int64_t>(v));
    const OpId producer = graph_.values[v].producer;
    if (roots[v] != id || producer.is_none() || !live.holds(producer.index())) continue;
    if (graph_.op(producer).direction != graph::Direction::kForward) continue;
    const std::size_t layer = chain_.of_op[producer.index()];
    if (is_saved[v] != 0) bytes_[layer].kept += Bytes(per_sample(id));
    if (readers[v].empty()) continue;
    const std::size_t last = *readers[v].rbegin();
    for (std::size_t l = layer; l < last; ++l) bytes_[l].output += Bytes(per_sample(id));
  }
  std::map<std::string, std::size_t> layer_of;
  for (const auto& [parameter, layers] : holders) {
    const graph::Value& value = graph_.value(parameter);
    const std::int64_t bytes = graph::value_bytes(value, {});
    const std::size_t home = *layers.begin();
    parameter_elements_[home] += graph::value_elements(value, {});
    bytes_[home].states += Bytes(bytes * (2 + plan::count_states(problem_.recipe)));
    bytes_[home].gradients += Bytes(bytes);
    if (layers.size() > 1 && !tied_) tied_ = std::pair(home, *layers.rbegin());
  }
  for (std::size_t l = 0; l < count; ++l) bytes_[l].workspace = Bytes(largest[l]);
}

bool ModelStageCosts::knows(std::size_t unit, std::int64_t micro_batch) const {
  const auto [found, is_new] = times_.try_emplace({unit, micro_batch});
  if (is_new) found->second = time(unit, micro_batch);
  return found->second.has_value();
}

std::vector<LayerWork> ModelStageCosts::work(std::size_t unit, std::int64_t micro_batch) const {
  (void)knows(unit, micro_batch);
  return times_.at({unit, micro_batch}).value();
}

std::optional<std::vector<LayerWork>> ModelStageCosts::time(std::size_t unit,
                                                            std::int64_t micro_batch) const {
  if (micro_batch < problem_.min_samples || micro_batch > problem_.max_samples) return std::nullopt;
  const auto [made, is_new] = programs_.try_emplace(micro_batch);
  if (is_new) {
    synth::LowerOptions options{problem_.recipe, problem_.batch_norm, problem_.bucket_bytes,
                                problem_.batch_norm_span, problem_.updates};
    auto lowered = synth::lower_first(graph_, {micro_batch, 1}, options);
    if (lowered) made->second = std::move(*lowered);
  }
  if (!made->second) return std::nullopt;
  program::DeviceProgram program = *made->second;
  program.device = problem_.cluster->device(pools_.devices[units_[unit].pool].front()).name;
  const auto times = model_.compute_times(program);
  if (!times) return std::nullopt;
  std::vector<LayerWork> work(chain_.names.size());
  double update = 0, elements = 0;
  for (std::size_t i = 0; i < times->size(); ++i) {
    const OpId origin = program.instructions[i].origin;
    if (origin.is_none()) {
      const bool is_load = program.instructions[i].op == "motley::load";
      if (is_load)
        work.front().forward += (*times)[i];
      else
        update += (*times)[i].value;
      continue;
    }
    LayerWork& layer = work[chain_.of_op[origin.index()]];
    (graph_.op(origin).direction == graph::Direction::kForward ? layer.forward : layer.backward) +=
        (*times)[i];
  }
  for (const std::int64_t each : parameter_elements_) elements += static_cast<double>(each);
  for (std::size_t l = 0; l < work.size(); ++l) {
    if (elements > 0)
      work[l].update = Seconds(update * static_cast<double>(parameter_elements_[l]) / elements);
    // The planner wants some work in every layer.
    work[l].forward = std::max(work[l].forward, Seconds(1e-9));
  }
  return work;
}

}  // namespace motley::search
