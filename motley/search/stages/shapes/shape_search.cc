#include "motley/search/stages/shapes/shape_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "motley/search/stages/costs/unit_hops.h"

namespace motley::search {

/// A suffix of stages: its time by the model, its devices' price, its first stage.
struct ShapeLabel {
  double time, cost;
  std::int32_t unit, end;
  std::int32_t rest;  // index in CheapestShape::kept_ of what follows; -1: nothing
};

/// Suffixes by first layer and class of the first unit (whole replicas by the unit itself); `rest`
/// refers to the label itself.
using ShapeStates = std::vector<std::vector<std::vector<ShapeLabel>>>;

namespace {

constexpr double kNoLink = std::numeric_limits<double>::infinity();
constexpr std::int64_t kMostKept = 1'000'000'000;  // micro-batches
constexpr double kLeast = 1e-12;  // of prices and times, relative: rounding tolerance

/// Removes from `added` labels that `labels` dominates, both by increasing time; usually all.
void drop_worse(std::vector<ShapeLabel>& added, const std::vector<ShapeLabel>& labels) {
  auto label = labels.begin();
  std::erase_if(added, [&](const ShapeLabel& each) {
    while (label != labels.end() && label->time <= each.time) ++label;
    return label != labels.begin() && each.cost >= std::prev(label)->cost * (1 - kLeast);
  });
}

/// Merges labels, both by increasing time, `labels` also with falling costs; keeps the undominated
/// ones in this order. `merged` is a buffer.
void add_best(std::vector<ShapeLabel>& labels, std::vector<ShapeLabel>& added,
              std::vector<ShapeLabel>& merged) {
  drop_worse(added, labels);
  if (added.empty()) return;
  merged.clear();
  auto label = labels.begin();
  auto other = added.begin();
  while (label != labels.end() || other != added.end()) {
    const bool is_other =
        label == labels.end() ||
        (other != added.end() &&
         (other->time < label->time || (other->time == label->time && other->cost < label->cost)));
    const ShapeLabel& next = is_other ? *other++ : *label++;
    if (merged.empty() || next.cost < merged.back().cost * (1 - kLeast)) merged.push_back(next);
  }
  labels.swap(merged);
}

}  // namespace

struct ShapeSearch::Scratch {
  ShapeStates after, now;
  std::vector<ShapeLabel> rest, kept, added, merged;
};

class CheapestShape {
 public:
  CheapestShape(const ShapeSearch& search, const ShapeQuestion& question)
      : search_(search),
        sums_(search.sums()),
        limits_(search.limits()),
        question_(question),
        tables_(search.tables(question.micro_batch)),
        scratch_(*search.scratch_),
        layers_(sums_.costs().layers()),
        micro_batches_((question.samples + question.micro_batch - 1) / question.micro_batch),
        rest_(scratch_.rest),
        kept_(scratch_.kept),
        added_(scratch_.added) {
    kept_.clear();
    const std::int64_t rest = question.samples % question.micro_batch;
    for (std::size_t u = 0; u < tables_.work.size(); ++u)
      if (tables_.work[u] != nullptr && (rest == 0 || sums_.costs().knows(u, rest))) add_unit(u);
    add_least();
  }

  std::optional<PricedShape> find() {
    // With one full micro-batch and a smaller one only one stage is possible.
    const bool has_full_ends = question_.samples % question_.micro_batch == 0 ||
                               question_.samples > 2 * question_.micro_batch;
    const std::size_t most = std::min(layers_, has_full_ends ? limits_.most_stages : 1);
    ShapeStates &after = scratch_.after, &now = scratch_.now;
    clear(after);
    for (std::size_t stages = 1; stages <= most && !units_.empty(); ++stages) {
      clear(now);
      extend(stages, after, now);
      if (!keep(now)) break;
      std::swap(after, now);
    }
    if (!best_) return std::nullopt;
    PricedShape found{{{}, question_.micro_batch}, best_->cost};
    std::size_t first = 0;
    for (const ShapeLabel* label = &*best_;;
         label = &kept_[static_cast<std::size_t>(label->rest)]) {
      const auto end = static_cast<std::size_t>(label->end);
      found.shape.stages.push_back(
          {first, end, units_[static_cast<std::size_t>(label->unit)].index});
      first = end;
      if (label->rest < 0) return found;
    }
  }

 private:
  void clear(ShapeStates& states) const {
    states.resize(layers_ + 1);
    for (auto& of_layer : states) {
      of_layer.resize(units_.size());
      for (auto& labels : of_layer) labels.clear();
    }
  }

  struct Unit {
    std::size_t index;
    const StageUnit* unit;
    std::size_t identical;  // the first unit that sends and receives alike
    double cost;
    std::vector<double> all;  // seconds of all samples, prefix sums
    const WorkSums* one;      // of a full micro-batch
    std::size_t group;        // units that may share a replica (ShapeLimits::mix)
  };

  std::size_t find_group(const StageUnit& unit) const {
    for (const Unit& other : units_)
      if (search_.are_together(*other.unit, unit)) return other.group;
    return together_.size();
  }

  void add_unit(std::size_t u) {
    const StageUnit& unit = sums_.costs().units()[u];
    Unit added{u, &unit, units_.size(), unit.cost(question_.prices), {}, nullptr, find_group(unit)};
    together_.resize(std::max(together_.size(), added.group + 1));
    together_[added.group].push_back(units_.size());
    for (std::size_t other = units_.size(); other-- > 0;)
      if (units_[other].index == tables_.identical[u]) added.identical = other;
    added.one = tables_.work[u];
    const std::int64_t full = question_.samples / question_.micro_batch,
                       rest = question_.samples % question_.micro_batch;
    const WorkSums* odd = rest > 0 ? &sums_.work(u, rest) : nullptr;
    for (std::size_t i = 0; i <= layers_; ++i)
      added.all.push_back(static_cast<double>(full) * added.one->pass(0, i) +
                          (odd ? odd->pass(0, i) : 0));
    units_.push_back(std::move(added));
  }

  /// Computes lower bounds for preceding layers: a stage costs at least its devices' price times
  /// its share of compute time, and adds a micro-batch's time.
  void add_least() {
    least_.assign(layers_ + 1, 0);
    least_pass_.assign(layers_ + 1, 0);
    for (std::size_t i = 0; i < layers_; ++i) {
      double least = kNoLink, pass = kNoLink;
      for (const Unit& unit : units_) {
        least = std::min(least, unit.cost * (unit.all[i + 1] - unit.all[i]) / question_.seconds);
        pass = std::min(pass, unit.one->pass(i, i + 1));
      }
      least_[i + 1] = least_[i] + least;
      least_pass_[i + 1] = least_pass_[i] + pass;
    }
  }

  std::size_t stretch(std::size_t first, std::size_t end) const {
    return first * (layers_ + 1) + end;
  }
  double post(std::size_t u, std::size_t first, std::size_t end) const {
    return tables_.post[units_[u].index][stretch(first, end)];
  }

  /// Can the unit compute these layers in time, and hold `stages` micro-batches of them?
  bool is_possible(std::size_t u, std::size_t first, std::size_t end, std::size_t stages) const {
    const Unit& unit = units_[u];
    if (unit.all[end] - unit.all[first] + post(u, first, end) > question_.seconds) return false;
    return std::min<std::int64_t>(static_cast<std::int64_t>(stages), micro_batches_) <=
           tables_.kept[unit.index][stretch(first, end)];
  }

  void extend(std::size_t stages, const ShapeStates& after, ShapeStates& now) {
    for (std::size_t end = layers_; end > 0; --end) {
      if ((stages == 1) != (end == layers_) || (stages > 1 && !is_alive_[end])) continue;
      for (std::size_t kind = 0; kind < units_.size(); ++kind) {
        if (units_[kind].identical != kind || !limits_.allows(*units_[kind].unit, end - 1, end))
          continue;
        rest_.clear();
        if (stages == 1)
          rest_.push_back({0, question_.replica_price, 0, 0, -1});
        else
          gather(kind, end, after[end]);
        for (std::size_t u = kind; u < units_.size() && !rest_.empty(); ++u)
          if (units_[u].identical == kind) prepend(u, end, stages, now);
      }
    }
  }

  /// Stores the suffixes and the best whole replica. Returns false if nothing is left to extend.
  bool keep(ShapeStates& now) {
    for (std::size_t u = 0; u < units_.size(); ++u)
      for (const ShapeLabel& label : now[0][u])
        if (label.cost < question_.most_cost * (1 - kLeast) &&
            label.time + post(u, 0, static_cast<std::size_t>(label.end)) <= question_.seconds) {
          best_ = label;
          question_.most_cost = label.cost;
        }
    bool any = false;
    is_alive_.assign(layers_ + 1, false);
    for (std::size_t first = 1; first < layers_; ++first)
      for (auto& labels : now[first]) {
        if (labels.empty()) continue;
        is_alive_[first] = true;
        for (ShapeLabel& label : labels) {
          kept_.push_back(label);
          label.rest = static_cast<std::int32_t>(kept_.size() - 1);
          any = true;
        }
      }
    return any;
  }

  /// Gathers suffixes that begin at `end`, with the messages from unit u.
  void gather(std::size_t u, std::size_t end,
              const std::vector<std::vector<ShapeLabel>>& suffixes) {
    for (const std::size_t next : together_[units_[u].group]) {
      if (suffixes[next].empty()) continue;
      const double messages =
          tables_.messages[(end * tables_.work.size() + units_[u].index) * tables_.work.size() +
                           units_[next].index];
      added_.clear();
      for (const ShapeLabel& label : suffixes[next]) {
        if (label.time + messages > question_.seconds) break;
        added_.push_back({label.time + messages, label.cost, 0, 0, label.rest});
      }
      add_best(rest_, added_, scratch_.merged);
    }
  }

  void prepend(std::size_t u, std::size_t end, std::size_t stages, ShapeStates& now) {
    const Unit& unit = units_[u];
    const auto tied = sums_.costs().tied();
    for (std::size_t first = end; first-- > 0;) {
      if (!limits_.allows(*unit.unit, first, end)) break;
      if (limits_.one_layer_stages && end - first > 1) break;
      if (!is_possible(u, first, end, stages)) {
        // A longer range needs more, unless it holds tied weights once instead of twice.
        if (tied && tied->first < first && tied->second < end) continue;
        break;
      }
      const double all = unit.all[end] - unit.all[first];
      const double one = unit.one->pass(first, end);
      // Of suffixes that end before the last sample is through this stage, the cheapest counts.
      auto rest = rest_.begin();
      if (stages > 1)
        rest = std::partition_point(rest, rest_.end(),
                                    [&](const ShapeLabel& each) { return one + each.time <= all; });
      if (rest != rest_.begin()) --rest;
      const double latest = question_.seconds - least_pass_[first] * (1 - kLeast);
      // Later ones cost less.
      const double dear = question_.most_cost / (1 + kLeast) - least_[first] - unit.cost;
      rest = std::partition_point(rest, rest_.end(),
                                  [&](const ShapeLabel& each) { return each.cost >= dear; });
      added_.clear();
      for (; rest != rest_.end(); ++rest) {
        const double time = stages == 1 ? all : std::max(all, one + rest->time);
        const double cost = unit.cost + rest->cost;
        if (time > latest) break;
        added_.push_back(
            {time, cost, static_cast<std::int32_t>(u), static_cast<std::int32_t>(end), rest->rest});
      }
      if (first == 0)
        now[0][u].insert(now[0][u].end(), added_.begin(), added_.end());
      else if (!added_.empty())
        add_best(now[first][unit.identical], added_, scratch_.merged);
    }
  }

  const ShapeSearch& search_;
  const StageSums& sums_;
  const ShapeLimits& limits_;
  ShapeQuestion question_;
  const ShapeSearch::BatchTables& tables_;
  ShapeSearch::Scratch& scratch_;
  std::size_t layers_;
  std::int64_t micro_batches_;
  std::vector<Unit> units_;
  std::vector<std::vector<std::size_t>> together_;  // indices of units, by group
  std::vector<double> least_, least_pass_;  // of preceding layers: cost, a micro-batch's time
  std::vector<bool> is_alive_;              // layers at which a suffix begins
  std::optional<ShapeLabel> best_;          // of whole replicas
  std::vector<ShapeLabel>&rest_, &kept_, &added_;
};

ShapeSearch::ShapeSearch(const StageSums& sums, const ShapeModel& model, const ShapeLimits& limits)
    : sums_(&sums), model_(model), limits_(limits), scratch_(std::make_shared<Scratch>()) {
  // Pools in the same hosts share their network card; the fastest pool's rate is used.
  const std::vector<DevicePool>& pools = sums.costs().pools();
  for (const StageUnit& unit : sums.costs().units()) {
    const DevicePool& own = pools[unit.pool()];
    double rate = 0;
    for (std::size_t p = 0; p < pools.size(); ++p)
      if (own.shares_hosts(pools[p])) rate = std::max(rate, sums.costs().host_rate(p).value);
    host_rates_.push_back(rate);
  }
}

const ShapeSearch::BatchTables& ShapeSearch::tables(std::int64_t micro_batch) const {
  const auto [at, is_new] = tables_.try_emplace(micro_batch);
  BatchTables& made = at->second;
  if (!is_new) return made;
  const StageCosts& costs = sums_->costs();
  const std::size_t layers = costs.layers(), units = costs.units().size();
  made.messages.assign((layers + 1) * units * units, 0);
  for (std::size_t u = 0; u < units; ++u) {
    auto& post = made.post.emplace_back((layers + 1) * (layers + 1), 0.0);
    auto& kept = made.kept.emplace_back((layers + 1) * (layers + 1), 0);
    made.work.push_back(costs.knows(u, micro_batch) ? &sums_->work(u, micro_batch) : nullptr);
    if (made.work.back() == nullptr) continue;
    const std::vector<double>& update = made.work.back()->update;
    for (std::size_t first = 0; first < layers; ++first)
      for (std::size_t end = first + 1; end <= layers; ++end) {
        const std::size_t at_stretch = first * (layers + 1) + end;
        post[at_stretch] = update[end] - update[first] + exchange(u, first, end);
        kept[at_stretch] =
            static_cast<std::int32_t>(sums_->most_in_flight(u, first, end, micro_batch, kMostKept));
      }
    for (std::size_t end = 1; end < layers; ++end)
      for (std::size_t next = 0; next < units; ++next)
        made.messages[(end * units + u) * units + next] = messages(u, next, end, micro_batch);
  }
  find_identical(made);
  return made;
}

void ShapeSearch::find_identical(BatchTables& tables) const {
  const std::vector<StageUnit>& all = sums_->costs().units();
  const std::size_t units = all.size();
  const auto are_identical = [&](std::size_t a, std::size_t b) {
    if (!all[a].is_like(all[b]) || tables.work[a] == nullptr) return false;
    for (std::size_t at = 0; at < tables.messages.size(); at += units * units)
      for (std::size_t next = 0; next < units; ++next)
        if (tables.messages[at + a * units + next] != tables.messages[at + b * units + next] ||
            tables.messages[at + next * units + a] != tables.messages[at + next * units + b])
          return false;
    return true;
  };
  for (std::size_t u = 0; u < units; ++u) {
    std::size_t first = 0;
    while (first < u && (tables.identical[first] != first || !are_identical(first, u))) ++first;
    tables.identical.push_back(first);
  }
}

std::optional<PricedShape> ShapeSearch::cheapest(const ShapeQuestion& question) const {
  return CheapestShape(*this, question).find();
}

double ShapeSearch::messages(std::size_t unit, std::size_t next, std::size_t end,
                             std::int64_t micro_batch) const {
  const Bytes bytes = sums_->output(unit, end) * micro_batch;
  const std::size_t units = sums_->costs().units().size();
  std::vector<double>& known = hops_[bytes.value];
  if (known.empty()) known.assign(units * units, -1);
  double& seconds = known[unit * units + next];
  if (seconds < 0) seconds = find_messages(unit, next, bytes);
  return seconds;
}

double ShapeSearch::find_messages(std::size_t unit, std::size_t next, Bytes bytes) const {
  const StageCosts& costs = sums_->costs();
  const StageUnit &here = costs.units()[unit], &there = costs.units()[next];
  const auto both_ways = [&](HopReach reach) {
    const auto out = find_hop(costs, here, there, reach, bytes);
    const auto back = find_hop(costs, there, here, reach, bytes);
    if (!out || !back) return kNoLink;
    const auto size = static_cast<double>(bytes.value);
    return out->delay.value + size / out->rate.value + back->delay.value + size / back->rate.value;
  };
  const Meeting meeting = find_meeting(unit, next);
  return std::min(meeting.apart ? both_ways(HopReach::kOtherHost) : kNoLink,
                  meeting.in_one_host ? both_ways(HopReach::kSameHost) : kNoLink);
}

ShapeSearch::Meeting ShapeSearch::find_meeting(std::size_t unit, std::size_t next) const {
  const StageCosts& costs = sums_->costs();
  const StageUnit &here = costs.units()[unit], &there = costs.units()[next];
  const DevicePool &from = costs.pools()[here.pool()], &to = costs.pools()[there.pool()];
  bool meets = from.shares_hosts(to);
  for (const UnitPart& a : here.parts)
    for (const UnitPart& b : there.parts)
      meets =
          meets && (a.pool != b.pool || a.devices + b.devices <= costs.pools()[a.pool].per_host);
  return {meets, from.hosts() + to.hosts() > 2 || from.first_host != to.first_host};
}

double ShapeSearch::exchange(std::size_t unit, std::size_t first, std::size_t end) const {
  if (model_.exchange_rounds == 0 || host_rates_[unit] <= 0) return 0;
  return model_.exchange_rounds * static_cast<double>(sums_->gradients(unit, first, end)) /
         host_rates_[unit];
}

double ShapeSearch::least_cost(double time, std::int64_t micro_batch,
                               const std::vector<double>& prices) const {
  const StageCosts& costs = sums_->costs();
  std::vector<double> least(costs.layers(), std::numeric_limits<double>::infinity());
  for (std::size_t u = 0; u < costs.units().size(); ++u) {
    const double cost = costs.units()[u].cost(prices);
    // The smaller last micro-batch may be faster per sample.
    for (std::int64_t batch = 1; batch <= micro_batch; ++batch) {
      if (!costs.knows(u, micro_batch) || !costs.knows(u, batch)) continue;
      const WorkSums& work = sums_->work(u, batch);
      for (std::size_t i = 0; i < least.size(); ++i)
        least[i] = std::min(least[i], cost * work.pass(i, i + 1) / static_cast<double>(batch));
    }
  }
  double sum = 0;
  for (const double layer : least) sum += layer;
  return sum / time;
}

const ShapeSearch::KnownShape& ShapeSearch::know(const ReplicaShape& shape) const {
  if (const auto known = known_.find(shape); known != known_.end()) return known->second;
  std::vector<ShapeTimes::Stage> stages;
  double before = 0, late = 0;
  for (std::size_t s = 0; s < shape.stages.size(); ++s) {
    const auto& [first, end, unit] = shape.stages[s];
    const WorkSums& work = sums_->work(unit, shape.micro_batch);
    const double post = work.update[end] - work.update[first] + exchange(unit, first, end);
    if (s == 0) late = post;
    const double pass = work.pass(first, end);
    stages.push_back({first, end, unit, pass, std::max(before + late, post)});
    if (s + 1 < shape.stages.size())
      before += pass + messages(unit, shape.stages[s + 1].unit, end, shape.micro_batch);
  }
  return known_
      .emplace(shape, KnownShape{ShapeTimes(*sums_, std::move(stages), shape.micro_batch),
                                 find_most_held(shape)})
      .first->second;
}

double ShapeSearch::seconds(const ReplicaShape& shape, std::int64_t samples) const {
  return know(shape).times.seconds(samples);
}

std::int64_t ShapeSearch::most_samples(const ReplicaShape& shape, double time,
                                       std::int64_t most) const {
  const KnownShape& known = know(shape);
  std::int64_t fits = known.times.most_samples(time, std::min(most, known.most_held));
  // A smaller micro-batch needs two full ones around it, or one in a single stage.
  const std::int64_t least = (shape.stages.size() > 1 ? 2 : 1) * shape.micro_batch;
  if (fits < least) fits -= fits % shape.micro_batch;
  return fits;
}

/// Returns the most samples for which memory holds 1F1B's micro-batches in flight.
std::int64_t ShapeSearch::find_most_held(const ReplicaShape& shape) const {
  const BatchTables& known = tables(shape.micro_batch);
  auto most = std::numeric_limits<std::int64_t>::max() - 1;
  for (std::size_t s = 0; s < shape.stages.size(); ++s) {
    const auto& [first, end, unit] = shape.stages[s];
    const std::int64_t kept = known.kept[unit][first * (sums_->costs().layers() + 1) + end];
    if (kept < static_cast<std::int64_t>(shape.stages.size() - s))
      most = std::min(most, kept * shape.micro_batch);
  }
  return most;
}

bool ShapeSearch::are_together(const StageUnit& unit, const StageUnit& other) const {
  const std::vector<DevicePool>& pools = sums_->costs().pools();
  return limits_.mix == UnitMix::kAll || unit.is_like(other) ||
         (limits_.mix == UnitMix::kOneKind && pools[unit.pool()].kind == pools[other.pool()].kind);
}

bool ShapeSearch::is_valid(const ReplicaShape& shape) const {
  const std::size_t stages = shape.stages.size();
  for (std::size_t s = 0; s < stages; ++s) {
    const auto& [first, end, unit] = shape.stages[s];
    const std::vector<StageUnit>& units = sums_->costs().units();
    if (!sums_->costs().knows(unit, shape.micro_batch) ||
        !limits_.allows(units[unit], first, end) ||
        !are_together(units[unit], units[shape.stages.front().unit]))
      return false;
    if (sums_->bytes(unit, first, end)
            .total(shape.micro_batch, static_cast<std::int64_t>(stages - s)) >
        sums_->memory(unit).value)
      return false;
  }
  return true;
}

std::vector<int> ShapeSearch::devices(const ReplicaShape& shape) const {
  std::vector<int> devices(sums_->costs().pools().size());
  for (const ShapeStage& stage : shape.stages) {
    for (const UnitPart& part : sums_->costs().units()[stage.unit].parts)
      devices[part.pool] += part.devices;
  }
  return devices;
}

}  // namespace motley::search
