#include "motley/search/model_stage_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <tuple>

#include "motley/graph/reach.h"
#include "motley/graph/work.h"
#include "motley/plan/pass_order.h"
#include "motley/search/adding_up.h"
#include "motley/search/layer_holds.h"
#include "motley/search/split/step_price.h"
#include "motley/search/spmd/spmd_planner.h"
#include "motley/search/stage_ways.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sharded_plan.h"

namespace motley::search {
namespace {

/// For which units of several devices find their ways: samples each, and micro-batches of a step.
constexpr std::int64_t kSamplesEach = 4, kPasses = 8;
/// Of a pass through all layers, about how many have the same time; at which micro-batch.
constexpr double kPieces = 128;
constexpr std::size_t kPiecesBatch = 3;

/// By parameter the layers that read it.
std::map<ValueId, std::set<std::size_t>> find_holders(const graph::Graph& graph,
                                                      const graph::LayerChain& chain) {
  const std::vector<ValueId> roots = find_roots(graph);
  const graph::Reach live = graph::find_live(graph);
  std::map<ValueId, std::set<std::size_t>> holders;
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (live.holds(i))
      graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
        const ValueId root = roots[value.index()];
        if (graph.value(root).role == graph::ValueRole::kParameter)
          holders[root].insert(chain.of_op[i]);
      });
  return holders;
}

/// Values that a layer's forward pass makes, or those before, and one behind it reads: a sample's.
/// `samples`: a micro-batch.
std::vector<Bytes> find_outputs(const graph::Graph& graph, const graph::LayerChain& chain,
                                std::int64_t samples) {
  std::vector<Bytes> outputs(chain.names.size(), Bytes(0));
  const std::vector<ValueId> roots = find_roots(graph);
  const graph::Reach live = graph::find_live(graph);
  const graph::Sizes small{{"batch", samples}}, large{{"batch", 2 * samples}};
  std::vector<std::size_t> last(graph.values.size(), 0);  // layer that reads it
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (live.holds(i) && graph.ops[i].direction == graph::Direction::kForward)
      graph::for_each_value(graph.ops[i].arguments, [&](ValueId value) {
        std::size_t& layer = last[roots[value.index()].index()];
        layer = std::max(layer, chain.of_op[i]);
      });
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const graph::Value& value = graph.values[v];
    const bool is_made = roots[v].index() == v && !value.producer.is_none() &&
                         live.holds(value.producer.index()) &&
                         graph.op(value.producer).direction == graph::Direction::kForward;
    if (!is_made) continue;
    const Bytes bytes((graph::value_bytes(value, large) - graph::value_bytes(value, small)) /
                      samples);
    for (std::size_t l = chain.of_op[value.producer.index()]; l < last[v]; ++l) outputs[l] += bytes;
  }
  return outputs;
}

/// On the line from one to the other.
std::vector<LayerWork> between(std::vector<LayerWork> less, const std::vector<LayerWork>& more,
                               double part) {
  for (std::size_t l = 0; l < less.size(); ++l)
    for (auto seconds : {&LayerWork::forward, &LayerWork::backward, &LayerWork::update})
      less[l].*seconds += part * (more[l].*seconds - less[l].*seconds);
  return less;
}

/// The most of what several devices hold, each times its scale.
void take_most(const LayerHolds& holds, double scale, LayerHolds& most) {
  for (auto bytes : {&LayerHolds::fixed, &LayerHolds::kept, &LayerHolds::workspace}) {
    (most.*bytes).resize((holds.*bytes).size(), 0);
    for (std::size_t l = 0; l < (holds.*bytes).size(); ++l)
      (most.*bytes)[l] = std::max((most.*bytes)[l], scale * (holds.*bytes)[l]);
  }
}

/// Of all layers, with nothing done again.
double pass(const std::array<std::vector<LayerWork>, kRecomputes.size()>& works) {
  double sum = 0;
  for (const LayerWork& layer : works[static_cast<std::size_t>(Recompute::kNothing)])
    sum += (layer.forward + layer.backward).value;
  return sum;
}

}  // namespace

ModelStageCosts::ModelStageCosts(const PlannerInputs& inputs, const plan::Problem& problem)
    : inputs_(inputs),
      graph_(*inputs.graph),
      problem_(problem),
      model_(inputs.costs->model(*problem.cluster)),
      chain_(graph::find_layer_chain(graph_)),
      depths_(find_depths(graph_)),
      alone_(depths_ ? graph::ShortGraph() : graph::shorten(graph_, chain_, chain_.names.size())),
      short_(depths_ ? depths_->searched : alone_) {}

Result<std::unique_ptr<ModelStageCosts>> ModelStageCosts::make(const PlannerInputs& inputs,
                                                               const plan::Problem& problem,
                                                               UnitKinds kinds) {
  std::unique_ptr<ModelStageCosts> made(new ModelStageCosts(inputs, problem));
  MOTLEY_ASSIGN(made->pools_,
                search::find_pools(*problem.cluster, problem.devices, UnknownMemory::kUnlimited));
  for (const DevicePool& pool : made->pools_.pools) made->memories_.push_back(pool.memory);
  const std::int64_t most = std::min(problem.max_samples, problem.global_batch);
  for (std::int64_t batch = std::max<std::int64_t>(1, problem.min_samples); batch <= most;
       batch *= 2)
    made->micro_batches_.push_back(batch);
  made->once_ = find_once(*inputs.graph, std::max<std::int64_t>(1, problem.min_samples),
                          problem.batch_norm_span);
  for (const Recompute how : kRecomputes)
    made->done_again_[how] = find_done_again(*inputs.graph, made->chain_, made->once_, how);
  made->add_identical_units();
  made->offered_ = made->units_;
  if (kinds != UnitKinds::kIdentical) made->add_mixed_units();
  if (kinds == UnitKinds::kSeveral) made->offered_ = made->units_;
  made->find_pieces();
  bool has_times = false;
  for (std::size_t unit = 0; unit < made->units_.size(); ++unit)
    has_times = has_times ||
                (!made->micro_batches_.empty() && made->knows(unit, made->micro_batches_.front()));
  if (!has_times) return usage_error("search.stages", "no device has times of the model's layers");
  return made;
}

double ModelStageCosts::speed(const PlannedStage& stage, std::int64_t micro_batch) const {
  const auto [known, is_new] = order_seconds_.try_emplace(micro_batch);
  if (is_new) {
    known->second.assign(layers(), 0);
    const graph::Reach live = graph::find_live(graph_);
    for (std::size_t i = 0; i < graph_.ops.size(); ++i)
      if (live.holds(i))
        known->second[pieces_.pieces.of_op[i]] += plan::order_seconds(
            graph::op_work(graph_, OpId(static_cast<std::int64_t>(i)), {{"batch", micro_batch}}));
  }
  double some = 0, here = 0;
  const std::vector<LayerWork> work = this->work(stage.unit, micro_batch);
  for (std::size_t l = stage.first; l < stage.end; ++l) {
    some += known->second[l];
    here += (work[l].forward + work[l].backward).value;
  }
  return some / (here * units_[stage.unit].degree());
}

/// For units of up to so many devices. None where nobody can say how operators are split: then
/// there are stages of one device.
std::unique_ptr<StageWays> ModelStageCosts::find_ways(int widest) const {
  if (widest < 2 || problem_.batch_norm != plan::BatchNormMode::kGlobal || micro_batches_.empty())
    return nullptr;
  auto found = StageWays::make(inputs_, problem_,
                               std::min(kSamplesEach * widest, micro_batches_.back()), depths_);
  return found ? *std::move(found) : nullptr;
}

/// Of each pool one device, and as many as there are in a host by powers of two.
void ModelStageCosts::add_identical_units() {
  int widest = 1;
  for (const DevicePool& pool : pools_.pools) widest = std::max(widest, pool.per_host);
  const std::unique_ptr<StageWays> ways = find_ways(widest);
  for (std::size_t pool = 0; pool < pools_.pools.size(); ++pool) {
    const std::vector<DeviceId>& devices = pools_.devices[pool];
    add_unit({pool, 1}, plan::Region{{devices.front()}, {1.0}});
    const int per_host = pools_.pools[pool].per_host;
    for (int degree = 2; ways && degree <= per_host;
         degree = degree < per_host ? std::min(2 * degree, per_host) : per_host + 1)
      for (const plan::Region& region :
           ways->find({devices.begin(), devices.begin() + degree},
                      std::vector<double>(static_cast<std::size_t>(degree), 1.0), kPasses))
        add_unit({pool, degree}, region);
  }
}

void ModelStageCosts::add_mixed_units() {
  std::map<int, int> of_host;  // devices, where there are several pools
  for (const DevicePool& pool : pools_.pools) of_host[pool.first_host] += pool.per_host;
  int widest = 1;
  for (const DevicePool& pool : pools_.pools)
    if (of_host[pool.first_host] > pool.per_host)
      widest = std::max(widest, of_host[pool.first_host]);
  const std::unique_ptr<StageWays> ways = find_ways(widest);
  if (!ways) return;
  std::vector<double> speeds;
  for (const std::vector<DeviceId>& devices : pools_.devices)
    speeds.push_back(1 / ways->whole_step(devices.front()));
  for (const StageUnit& unit : find_mixed_units(pools_.pools, speeds)) {
    std::vector<DeviceId> devices;
    for (const UnitPart& part : unit.parts)
      devices.insert(devices.end(), pools_.devices[part.pool].begin(),
                     pools_.devices[part.pool].begin() + part.devices);
    for (const plan::Region& region : ways->find(devices, ways->find_shares(devices), kPasses))
      add_unit(unit, region);
  }
}

void ModelStageCosts::add_unit(StageUnit unit, plan::Region ways) {
  units_.push_back(std::move(unit));
  ways_.push_back(std::move(ways));
  double held = 0;
  for (const UnitPart& part : units_.back().parts) {
    const cluster::Device& device = problem_.cluster->device(pools_.devices[part.pool].front());
    held = std::max(held, scale(units_.size() - 1, part.pool) *
                              static_cast<double>(cost::with_framework(device, Bytes(0)).value));
  }
  held_.emplace_back(std::llround(held));
  if (!gathers_again(units_.size() - 1)) return;
  // Whole copies of a layer, and of the next one on their way.
  std::vector<double> copies(chain_.names.size() + 1, 0);
  for (const auto& [parameter, readers] : find_holders(graph_, chain_))
    copies[*readers.begin()] +=
        static_cast<double>(graph::value_bytes(graph_.value(parameter), {}));
  double most = 0;
  for (std::size_t l = 0; l < chain_.names.size(); ++l)
    most = std::max(most, copies[l] + copies[l + 1]);
  held_.back() += Bytes(std::llround(most));
  if (once_gathering_.empty())
    once_gathering_ = find_once(graph_, std::max<std::int64_t>(1, problem_.min_samples),
                                problem_.batch_norm_span, GatheredParameters::kForEachPass);
}

/// By what operators take one after the other on the first device that has times.
void ModelStageCosts::find_pieces() {
  std::vector<double> seconds(graph_.ops.size(), 0);
  for (std::size_t unit = 0; unit < units_.size() && !micro_batches_.empty(); ++unit) {
    if (units_[unit].degree() > 1) continue;
    const auto& lowered =
        lower(unit, micro_batches_[std::min(kPiecesBatch, micro_batches_.size() - 1)]);
    if (!lowered) continue;
    const program::Program program = named(unit, *lowered);
    const auto times = model_.all_times(program);
    if (!times) continue;
    const program::DeviceProgram& device = program.devices[0];
    for (std::size_t i = 0; i < device.instructions.size(); ++i)
      if (const OpId op = device.instructions[i].origin; !op.is_none())
        seconds[op.index()] += times->front().seconds[i].value;
    break;
  }
  double all = 0;
  for (const OpId op : short_.of_op) all += seconds[short_.whole_op[op.index()].index()];
  const std::int64_t least = std::max<std::int64_t>(1, problem_.min_samples);
  pieces_ = find_finer_layers(
      {graph_, chain_, short_, std::move(seconds), std::max(all, 1e-9) / kPieces, least});
  find_tied();
  outputs_ = find_outputs(graph_, pieces_.pieces, least);
}

bool ModelStageCosts::gathers_again(std::size_t unit) const {
  const std::vector<plan::KeptParameter>& kept = ways_[unit].parameters;
  return std::any_of(kept.begin(), kept.end(),
                     [](const plan::KeptParameter& each) { return each.is_gathered_again; });
}

double ModelStageCosts::waiting(std::size_t unit) const {
  const auto known = waiting_.find(unit);
  return known == waiting_.end() ? 0 : known->second;
}

const std::vector<char>& ModelStageCosts::once(std::size_t unit) const {
  return gathers_again(unit) ? once_gathering_ : once_;
}

/// max over prices y of devices, all together worth 1, of batch * sum over layers of the least
/// y_p t_lp: the dual of spreading layers' samples over pools, so every y bounds it. Prices rise
/// where the cheapest spread puts more work than elsewhere.
Seconds ModelStageCosts::least_step() const {
  constexpr int kRounds = 300;
  std::vector<std::vector<double>> times;  // by pool and layer: of a sample, on one device
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].degree() > 1) continue;
    std::vector<double>& least =
        times.emplace_back(layers(), std::numeric_limits<double>::infinity());
    for (const std::int64_t batch : micro_batches_) {
      if (!knows(unit, batch)) continue;
      const std::vector<LayerWork> work = this->work(unit, batch);
      // A step of one micro-batch adds up nothing.
      const std::vector<Seconds>& sums = adding_up(unit);
      for (std::size_t l = 0; l < layers(); ++l)
        least[l] = std::min(least[l], (work[l].forward + work[l].backward - sums[l]).value /
                                          static_cast<double>(batch));
    }
  }
  std::vector<double> prices(times.size(), 1);
  double best = 0;
  for (int round = 1; round <= kRounds; ++round) {
    double worth = 0, sum = 0;
    std::vector<double> loads(times.size(), 0);  // of each device
    for (std::size_t l = 0; l < layers(); ++l) {
      std::size_t cheapest = 0;
      for (std::size_t p = 1; p < times.size(); ++p)
        if (prices[p] * times[p][l] < prices[cheapest] * times[cheapest][l]) cheapest = p;
      sum += prices[cheapest] * times[cheapest][l];
      loads[cheapest] += times[cheapest][l] / pools_.pools[cheapest].devices;
    }
    for (std::size_t p = 0; p < times.size(); ++p) worth += prices[p] * pools_.pools[p].devices;
    best = std::max(best, static_cast<double>(problem_.global_batch) * sum / worth);
    const double most = *std::max_element(loads.begin(), loads.end());
    for (std::size_t p = 0; most > 0 && p < times.size(); ++p)
      prices[p] *= std::exp(loads[p] / most / std::sqrt(round));
  }
  return Seconds(std::isfinite(best) ? best : 0);
}

std::vector<DeviceId> ModelStageCosts::devices(const PlannedStage& stage) const {
  std::vector<DeviceId> devices;
  const std::vector<UnitPart>& parts = units_[stage.unit].parts;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const std::size_t pool = parts[part].pool;
    const auto first = pools_.devices[pool].begin() + stage.host * pools_.pools[pool].per_host +
                       stage.slot_of(part);
    devices.insert(devices.end(), first, first + parts[part].devices);
  }
  return devices;
}

/// Memory of the unit's device that has least, beside that of one of a pool.
double ModelStageCosts::scale(std::size_t unit, std::size_t pool) const {
  Bytes least = memories_[pool];
  for (const UnitPart& part : units_[unit].parts) least = std::min(least, memories_[part.pool]);
  return static_cast<double>(least.value) / static_cast<double>(memories_[pool].value);
}

std::vector<double> ModelStageCosts::scales(std::size_t unit) const {
  std::vector<double> scales;
  for (const UnitPart& part : units_[unit].parts)
    scales.insert(scales.end(), static_cast<std::size_t>(part.devices), scale(unit, part.pool));
  return scales;
}

/// Of unlike devices the one of whose memory the least part may be used counts.
Bytes ModelStageCosts::memory(std::size_t unit) const {
  if (!units_[unit].is_mixed()) return StageCosts::memory(unit);
  double least = std::numeric_limits<double>::infinity();
  for (const UnitPart& part : units_[unit].parts)
    least = std::min(
        least, scale(unit, part.pool) * static_cast<double>(pools_.pools[part.pool].memory.value));
  return Bytes(std::llround(least));
}

plan::Region ModelStageCosts::region(const PlannedStage& stage,
                                     const std::vector<Recompute>& again) const {
  const plan::Region& ways = ways_[stage.unit];
  plan::Region made{devices(stage), ways.shares};
  std::set<ValueId> parameters;  // that its operators read
  const std::vector<std::size_t>& of_op = pieces_.pieces.of_op;
  std::vector<Recompute> how;  // by piece of the stage
  const auto own = pieces_.parts(stage.first, stage.end);
  for (std::size_t l = 0; l < own.size(); ++l)
    how.insert(how.end(), own[l].second - own[l].first, again[l]);
  for (std::size_t i = 0; i < of_op.size(); ++i) {
    if (of_op[i] < stage.first || of_op[i] >= stage.end) continue;
    plan::append(made.covers, static_cast<std::int64_t>(i));
    if (done_again_.at(how[of_op[i] - stage.first])[i] != 0)
      plan::append(made.recomputes, static_cast<std::int64_t>(i));
    if (!ways.operators.empty()) made.operators.push_back(ways.operators[short_.of_op[i].index()]);
    graph::for_each_value(graph_.ops[i].arguments, [&](ValueId value) {
      if (graph_.value(value).role == graph::ValueRole::kParameter) parameters.insert(value);
    });
  }
  std::map<std::string, const plan::KeptParameter*> kept;
  for (const plan::KeptParameter& each : ways.parameters) kept.emplace(each.name, &each);
  for (const ValueId parameter : parameters) {
    const auto known = kept.find(short_.graph.value(short_.of_value[parameter.index()]).name);
    if (known != kept.end())
      made.parameters.push_back(
          {graph_.value(parameter).name, known->second->form, known->second->is_gathered_again});
  }
  // The only region of its replica has all.
  if (stage.first == 0 && stage.end == layers()) made.covers.clear();
  return made;
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

bool ModelStageCosts::offer_mixed() {
  if (offered_.size() == units_.size()) return false;
  offered_ = units_;
  are_states_shared_ = false;
  recompute(Recompute::kNothing, Recompute::kNothing);
  for (std::size_t pool = 0; pool < pools_.pools.size(); ++pool)
    pools_.pools[pool].memory = memories_[pool];
  return true;
}

void ModelStageCosts::recompute(Recompute keeps, Recompute takes) {
  keeps_ = keeps;
  takes_ = takes;
}

void ModelStageCosts::take_memory(std::size_t pool, double part) {
  Bytes& memory = pools_.pools[pool].memory;
  memory = Bytes(static_cast<std::int64_t>(static_cast<double>(memory.value) * part));
}

/// Parameters by the layer that holds them; those of two layers are tied.
void ModelStageCosts::find_tied() {
  parameter_bytes_.assign(layers(), 0);
  for (const auto& [parameter, layers] : find_holders(graph_, pieces_.pieces)) {
    parameter_bytes_[*layers.begin()] +=
        static_cast<double>(graph::value_bytes(graph_.value(parameter), {}));
    if (layers.size() > 1 && !tied_) tied_ = std::pair(*layers.begin(), *layers.rbegin());
  }
}

std::vector<LayerBytes> ModelStageCosts::bytes(std::size_t unit) const {
  std::vector<LayerBytes> bytes = bytes_of(unit, keeps_);
  if (!are_states_shared_) return bytes;
  const double states = plan::count_states(problem_.recipe);
  const double parts = ways_[unit].parameters.empty() ? 1 : units_[unit].degree();
  for (std::size_t l = 0; l < layers(); ++l)
    if (units_[unit].is_mixed())  // whatever their parts are: beside parameters and gradients
      bytes[l].states -= Bytes(
          std::llround(0.5 * states / (states + 2) * static_cast<double>(bytes[l].states.value)));
    else
      bytes[l].states -= Bytes(std::llround(0.5 * states / parts * parameter_bytes_[l]));
  return bytes;
}

void ModelStageCosts::share_states() {
  are_states_shared_ = true;
  for (std::size_t pool = 0; pool < pools_.pools.size(); ++pool)
    if (const auto memory = problem_.cluster->device(pools_.devices[pool].front()).room())
      pools_.pools[pool].memory = *memory;
}

/// By the programs of the two smallest micro-batches that are simulated, and the line through them.
const std::vector<LayerBytes>& ModelStageCosts::bytes_of(std::size_t unit, Recompute how) const {
  const auto [known, is_new] = bytes_.try_emplace({unit, how});
  if (is_new) known->second = find_bytes(unit, how);
  return known->second;
}

std::vector<LayerBytes> ModelStageCosts::find_bytes(std::size_t unit, Recompute how) const {
  std::vector<LayerBytes> bytes(layers());
  const auto devices = static_cast<double>(ways_[unit].devices.size());
  for (std::size_t l = 0; l < layers(); ++l) {
    bytes[l].gradients = Bytes(std::llround(parameter_bytes_[l] / devices));
    bytes[l].output = outputs_[l];
  }
  std::vector<std::size_t> groups;  // by piece: its layer
  for (std::size_t l = 0; l < chain_.names.size(); ++l) groups.resize(pieces_.first[l + 1], l);
  std::vector<std::pair<double, LayerHolds>> found;  // samples
  for (const std::int64_t batch : simulated(unit)) {
    if (found.size() == 2) break;
    const std::optional<program::Program>& program = lower(unit, batch);
    if (!program) continue;
    const auto times = model_.all_times(named(unit, *program));
    LayerHolds most;
    for (std::size_t part = 0; part < program->devices.size(); ++part) {
      const program::DeviceProgram& device = program->devices[part];
      const std::vector<LayerPlace> places =
          find_layer_places(device, graph_, pieces_.pieces, once(unit));
      const std::vector<Bytes> scratch = times ? (*times)[part].scratch : std::vector<Bytes>();
      take_most(find_layer_holds(device, places, done_again_.at(how), groups, scratch),
                scale(unit, units_[unit].parts[part].pool), most);
    }
    found.emplace_back(static_cast<double>(batch), std::move(most));
  }
  if (found.empty()) return bytes;
  const auto& [less, small] = found.front();
  const auto& [more, large] = found.back();
  for (std::size_t layer = 0; layer < layers(); ++layer) {
    const std::size_t l = pieces_.stand[layer];
    const double each = less < more ? std::max(0.0, (large.kept[l] - small.kept[l]) / (more - less))
                                    : large.kept[l] / more;
    bytes[layer].kept = Bytes(std::llround(each));
    bytes[layer].states = Bytes(std::llround(large.fixed[l] + large.kept[l] - more * each));
    bytes[layer].workspace = Bytes(std::llround(large.workspace[l] / more));
  }
  return bytes;
}

/// By their programs; on several devices, whose times are found for many ways, three micro-batches.
std::vector<std::int64_t> ModelStageCosts::simulated(std::size_t unit) const {
  const int degree = units_[unit].degree();
  if (degree == 1) return micro_batches_;
  std::vector<std::int64_t> batches;
  for (const std::int64_t batch : micro_batches_)
    if (batch >= degree && (batches.empty() || batch == micro_batches_.back() ||
                            (batches.size() == 1 && batch >= 4 * batches.front())))
      batches.push_back(batch);
  return batches;
}

/// What is not simulated lies on the line between two micro-batches that are; what is less than the
/// smallest of them takes as long as it.
bool ModelStageCosts::knows(std::size_t unit, std::int64_t micro_batch) const {
  const auto [found, is_new] = times_.try_emplace({unit, micro_batch});
  std::optional<LayerWorks>& works = found->second;
  if (!is_new) return works.has_value();
  if (micro_batch < problem_.min_samples || micro_batch > problem_.max_samples) return false;
  const std::vector<std::int64_t> batches = simulated(unit);
  const auto above = std::lower_bound(batches.begin(), batches.end(), micro_batch);
  if (above == batches.end()) return false;
  if (*above == micro_batch) {
    works = time(unit, micro_batch);
  } else if (above == batches.begin()) {
    if (knows(unit, *above)) works = times_.at({unit, *above});
  } else if (const std::int64_t less = *std::prev(above);
             knows(unit, less) && knows(unit, *above)) {
    const double part =
        static_cast<double>(micro_batch - less) / static_cast<double>(*above - less);
    works = times_.at({unit, less});
    for (std::size_t how = 0; how < works->size(); ++how)
      (*works)[how] = between((*works)[how], (*times_.at({unit, *above}))[how], part);
  }
  return works.has_value();
}

std::vector<LayerWork> ModelStageCosts::work(std::size_t unit, std::int64_t micro_batch) const {
  return work_of(unit, micro_batch, takes_);
}

std::vector<LayerWork> ModelStageCosts::work_of(std::size_t unit, std::int64_t micro_batch,
                                                Recompute how) const {
  (void)knows(unit, micro_batch);
  return times_.at({unit, micro_batch}).value()[static_cast<std::size_t>(how)];
}

Result<synth::RuledSharding> ModelStageCosts::split(const plan::Region& ways,
                                                    std::int64_t micro_batch) const {
  plan::Plan plan = plan::blank_plan(problem_);
  plan.global_batch = micro_batch;
  plan.replicas = {{micro_batch, {ways}}};
  return synth::find_ruled_sharding(short_.graph, plan, *problem_.cluster);
}

/// One micro-batch on the unit; none where it cannot be split so.
const std::optional<program::Program>& ModelStageCosts::lower(std::size_t unit,
                                                              std::int64_t micro_batch) const {
  const auto same = std::find_if(ways_.begin(), ways_.end(), [&](const plan::Region& other) {
    return other.operators == ways_[unit].operators && other.parameters == ways_[unit].parameters &&
           other.shares == ways_[unit].shares &&
           first_ranks(static_cast<std::size_t>(&other - ways_.data())) == first_ranks(unit);
  });
  const auto [made, is_new] =
      programs_.try_emplace({static_cast<std::size_t>(same - ways_.begin()), micro_batch});
  if (!is_new) return made->second;
  const auto found = split(*same, micro_batch);
  if (!found) return made->second;
  const auto program =
      synth::lower_ranks(short_.graph, found->sharding, found->rules, first_ranks(unit),
                         spmd_question(inputs_, problem_).lowering);
  if (!program) return made->second;
  made->second = *program;
  set_origins(short_, *made->second);
  return made->second;
}

std::vector<std::size_t> ModelStageCosts::first_ranks(std::size_t unit) const {
  std::vector<std::size_t> ranks;
  std::size_t next = 0;
  for (const UnitPart& part : units_[unit].parts)
    ranks.push_back(std::exchange(next, next + static_cast<std::size_t>(part.devices)));
  return ranks;
}

/// On the unit's first devices.
program::Program ModelStageCosts::named(std::size_t unit, program::Program program) const {
  const std::vector<std::size_t> ranks = first_ranks(unit);
  for (std::size_t part = 0; part < ranks.size(); ++part)
    program.devices[part].device = problem_.cluster->device(ways_[unit].devices[ranks[part]]).name;
  return program;
}

std::optional<ModelStageCosts::LayerWorks> ModelStageCosts::time(std::size_t unit,
                                                                 std::int64_t micro_batch) const {
  const std::optional<program::Program>& lowered = lower(unit, micro_batch);
  if (!lowered) return std::nullopt;
  const program::Program program = named(unit, *lowered);
  std::vector<std::string> group;
  for (const DeviceId device : ways_[unit].devices)
    group.push_back(problem_.cluster->device(device).name);
  const auto times = model_.all_times(program);
  if (!times) return std::nullopt;
  const auto priced = price_program(program, group, model_, *times);
  if (!priced) return std::nullopt;
  // They wait for each other, so the one that is at it longest says what it takes.
  LayerWorks works = spread(unit, program, 0, priced->trace);
  for (std::size_t device = 1; device < program.devices.size(); ++device)
    if (LayerWorks other = spread(unit, program, device, priced->trace); pass(other) > pass(works))
      works = std::move(other);
  const std::vector<Seconds>& sums = adding_up(unit);
  for (std::vector<LayerWork>& layers : works)
    for (std::size_t l = 0; l < layers.size(); ++l) layers[l].backward += sums[l];
  return works;
}

/// Of the gradients of a micro-batch to those before, on the unit's first device, or the one that
/// takes longest.
const std::vector<Seconds>& ModelStageCosts::adding_up(std::size_t unit) const {
  const auto [known, is_new] = adding_up_.try_emplace(unit);
  if (!is_new) return known->second;
  const plan::Region& ways = ways_[unit];
  known->second.assign(layers(), Seconds(0));
  const double all = std::accumulate(ways.shares.begin(), ways.shares.end(), 0.0);
  for (const std::size_t rank : first_ranks(unit)) {
    const std::vector<Seconds> seconds = find_adding_up(
        graph_, pieces_.pieces, model_,
        {problem_.cluster->device(ways.devices[rank]).name, ways.shares[rank] / all,
         [&](std::size_t op) {
           return ways.operators.empty() ? nullptr : &ways.operators[short_.of_op[op].index()];
         }});
    for (std::size_t l = 0; l < layers(); ++l)
      known->second[l] = std::max(known->second[l], seconds[l]);
  }
  return known->second;
}

/// What the compute lane does, and before it waits for, by layer; what a step has once by their
/// parameters.
ModelStageCosts::LayerWorks ModelStageCosts::spread(std::size_t unit, const program::Program& whole,
                                                    std::size_t device,
                                                    const trace::Trace& trace) const {
  const program::DeviceProgram& program = whole.devices[device];
  LayerWorks seen;
  seen.fill(std::vector<LayerWork>(layers()));
  const std::vector<LayerPlace> places =
      find_layer_places(program, graph_, pieces_.pieces, once(unit));
  double once = 0, all = 0, waited = 0, in_layers = 0;
  trace::Nanoseconds before = 0;
  for (const trace::Interval& interval : trace.intervals) {
    if (interval.lane != Lane::kCompute || interval.device != static_cast<int>(device)) continue;
    const Seconds waits(static_cast<double>(interval.begin - before) * 1e-9);
    const Seconds taken(static_cast<double>(interval.end - std::exchange(before, interval.end)) *
                        1e-9);
    const LayerPlace& place = places[interval.instruction.index()];
    const bool is_load = program.instructions[interval.instruction.index()].op == "motley::load";
    if (place.is_once && !is_load) once += taken.value;
    if (!place.is_once) {
      waited += waits.value;
      in_layers += taken.value;
    }
    for (const Recompute how : kRecomputes) {
      LayerWork& layer = seen[static_cast<std::size_t>(how)][place.layer];
      if (!place.is_once || is_load) (place.is_forward ? layer.forward : layer.backward) += taken;
      if (is_again(place, done_again_.at(how))) layer.backward += taken;
    }
  }
  if (in_layers > 0) waiting_[unit] = std::max(waiting_[unit], waited / in_layers);
  for (std::size_t l = 0; l < layers(); ++l)
    if (pieces_.stand[l] == l) all += parameter_bytes_[l];
  LayerWorks works;
  for (std::size_t how = 0; how < works.size(); ++how)
    for (std::size_t l = 0; l < layers(); ++l) {
      LayerWork& work = works[how].emplace_back(seen[how][pieces_.stand[l]]);
      if (all > 0) work.update = Seconds(once * parameter_bytes_[l] / all);
      // The planner wants some work in every layer.
      work.forward = std::max(work.forward, Seconds(1e-9));
    }
  return works;
}

}  // namespace motley::search
