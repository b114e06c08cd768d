#include "motley/search/model_stages/layer_times.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "motley/search/model_stages/adding_up.h"
#include "motley/search/model_stages/layer_holds.h"
#include "motley/search/split/step_price.h"

namespace motley::search {
namespace {

/// On the line from one to the other.
std::vector<LayerWork> between(std::vector<LayerWork> less, const std::vector<LayerWork>& more,
                               double part) {
  for (std::size_t l = 0; l < less.size(); ++l)
    for (auto seconds : {&LayerWork::forward, &LayerWork::backward, &LayerWork::update})
      less[l].*seconds += part * (more[l].*seconds - less[l].*seconds);
  return less;
}

/// The whole graph, without recomputation.
double pass(const std::array<std::vector<LayerWork>, kRecomputes.size()>& works) {
  double sum = 0;
  for (const LayerWork& layer : works[static_cast<std::size_t>(Recompute::kNothing)])
    sum += (layer.forward + layer.backward).value;
  return sum;
}

}  // namespace

bool LayerTimes::knows(std::size_t unit, std::int64_t micro_batch) const {
  const auto [known, is_new] = times_.try_emplace({unit, micro_batch});
  if (is_new) known->second = find(unit, micro_batch);
  return known->second.has_value();
}

std::optional<LayerTimes::Works> LayerTimes::find(std::size_t unit,
                                                  std::int64_t micro_batch) const {
  const plan::Problem& problem = programs_.units().problem();
  if (micro_batch < problem.min_samples || micro_batch > problem.max_samples) return std::nullopt;
  const std::vector<std::int64_t> batches = programs_.units().simulated(unit);
  const auto above = std::lower_bound(batches.begin(), batches.end(), micro_batch);
  if (above == batches.end()) return std::nullopt;
  if (*above == micro_batch) return simulate(unit, micro_batch);
  if (above == batches.begin())
    return knows(unit, *above) ? times_.at({unit, *above}) : std::nullopt;
  const std::int64_t less = *std::prev(above);
  if (!knows(unit, less) || !knows(unit, *above)) return std::nullopt;
  const double part = static_cast<double>(micro_batch - less) / static_cast<double>(*above - less);
  Works works = *times_.at({unit, less});
  for (std::size_t how = 0; how < works.size(); ++how)
    works[how] = between(std::move(works[how]), (*times_.at({unit, *above}))[how], part);
  return works;
}

const std::vector<LayerWork>& LayerTimes::work(std::size_t unit, std::int64_t micro_batch,
                                               Recompute how) const {
  (void)knows(unit, micro_batch);
  return times_.at({unit, micro_batch}).value()[static_cast<std::size_t>(how)];
}

std::optional<LayerTimes::Works> LayerTimes::simulate(std::size_t unit,
                                                      std::int64_t micro_batch) const {
  const auto program = programs_.find(unit, micro_batch);
  if (!program) return std::nullopt;
  const ModelUnits& units = programs_.units();
  std::vector<std::string> group;
  for (const DeviceId device : units.ways(unit).devices)
    group.push_back(units.problem().cluster->device(device).name);
  const auto times = programs_.model().all_times(*program);
  if (!times) return std::nullopt;
  const auto priced = price_program(*program, group, programs_.model(), *times);
  if (!priced) return std::nullopt;
  // They wait for each other, so the one that is at it longest says what it takes.
  Works works = spread(unit, *program, 0, priced->trace);
  for (std::size_t device = 1; device < program->devices.size(); ++device)
    if (Works other = spread(unit, *program, device, priced->trace); pass(other) > pass(works))
      works = std::move(other);
  const std::vector<Seconds>& sums = adding_up(unit);
  for (std::vector<LayerWork>& layers : works)
    for (std::size_t l = 0; l < layers.size(); ++l) layers[l].backward += sums[l];
  return works;
}

/// On the unit's first device, or the one of its parts that takes longest.
const std::vector<Seconds>& LayerTimes::adding_up(std::size_t unit) const {
  const auto [known, is_new] = adding_up_.try_emplace(unit);
  if (!is_new) return known->second;
  const ModelUnits& units = programs_.units();
  const plan::Region& ways = units.ways(unit);
  known->second.assign(pieces_.size(), Seconds(0));
  const double all = std::accumulate(ways.shares.begin(), ways.shares.end(), 0.0);
  for (const std::size_t rank : units.first_ranks(unit)) {
    const std::vector<Seconds> seconds =
        find_adding_up(programs_.graph().whole(), pieces_.cut.pieces, programs_.model(),
                       {units.problem().cluster->device(ways.devices[rank]).name,
                        ways.shares[rank] / all, [&](std::size_t op) {
                          return ways.operators.empty()
                                     ? nullptr
                                     : &ways.operators[programs_.graph().shown().of_op[op].index()];
                        }});
    for (std::size_t l = 0; l < pieces_.size(); ++l)
      known->second[l] = std::max(known->second[l], seconds[l]);
  }
  return known->second;
}

double LayerTimes::waiting(std::size_t unit) const {
  const auto known = waiting_.find(unit);
  return known == waiting_.end() ? 0 : known->second;
}

/// What the compute lane does, and before it waits for, by piece; what a step has once by their
/// parameters.
LayerTimes::Works LayerTimes::spread(std::size_t unit, const program::Program& whole,
                                     std::size_t device, const trace::Trace& trace) const {
  const LayeredGraph& graph = programs_.graph();
  const program::DeviceProgram& program = whole.devices[device];
  const std::vector<LayerPlace> places = find_layer_places(
      program, graph.whole(), pieces_.cut.pieces, graph.once(programs_.units().gathers(unit)));
  Works seen;
  seen.fill(std::vector<LayerWork>(pieces_.size()));
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
      if (is_again(place, graph.done_again(how))) layer.backward += taken;
    }
  }
  if (in_layers > 0) waiting_[unit] = std::max(waiting_[unit], waited / in_layers);
  const std::vector<std::size_t>& stand = pieces_.cut.stand;
  const std::vector<double>& bytes = pieces_.parameters.bytes;
  for (std::size_t l = 0; l < pieces_.size(); ++l)
    if (stand[l] == l) all += bytes[l];
  Works works;
  for (std::size_t how = 0; how < works.size(); ++how)
    for (std::size_t l = 0; l < pieces_.size(); ++l) {
      LayerWork& work = works[how].emplace_back(seen[how][stand[l]]);
      if (all > 0) work.update = Seconds(once * bytes[l] / all);
      // The planner wants some work in every layer.
      work.forward = std::max(work.forward, Seconds(1e-9));
    }
  return works;
}

}  // namespace motley::search
