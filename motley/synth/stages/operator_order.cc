#include "motley/synth/stages/operator_order.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "motley/graph/work.h"
#include "motley/plan/pass_order.h"

namespace motley::synth {
namespace {

/// Where an operator is in its micro-batch: `level` counts how often a value came from another
/// region, or from the forward pass to the backward one.
struct Spot {
  std::int64_t pass = 0, level = 0;
  bool is_backward = false;
  bool is_free = false;  // backward, of what forward passes made alone, or of parameters
  bool is_late = false;  // backward, and nothing that others wait for depends on it

  plan::StageTask::Pass kind() const {
    if (!is_backward) return plan::StageTask::Pass::kForward;
    return is_late ? plan::StageTask::Pass::kWeights : plan::StageTask::Pass::kBackward;
  }
};

/// Counts sets of devices if some device has several regions; else 0.
std::size_t find_turn(const plan::Replica& replica) {
  std::set<std::vector<DeviceId>> sets;
  std::set<DeviceId> seen;
  bool is_repeated = false;
  for (const plan::Region& region : replica.regions) {
    sets.insert(region.devices);
    for (const DeviceId device : region.devices)
      is_repeated = !seen.insert(device).second || is_repeated;
  }
  return is_repeated ? sets.size() : 0;
}

/// Operators in stages with their spots, in the order of the graph; but for those before and behind
/// all micro-batches.
class Spots {
 public:
  struct Entry {
    StagedOp at;
    Spot spot;
  };

  explicit Spots(const StageNeeds& needs) : needs_(needs) {
    for (std::size_t op = 0; op < needs.stages_of.size(); ++op) {
      begins_.push_back(entries_.size());
      const bool is_shared = needs.all.copies[op].micro_batch < 0;
      for (const std::size_t stage : needs.stages_of[op])
        if (is_shared && op >= needs.all.late)
          last_.push_back({op, stage});
        else if (is_shared || op < needs.all.early)
          first_.push_back({op, stage});
        else
          add({op, stage});
    }
  }

  std::vector<Entry>& entries() { return entries_; }
  const std::vector<StagedOp>& first() const { return first_; }
  const std::vector<StagedOp>& last() const { return last_; }

  /// Visits the entries of what an operator reads.
  template <typename Visit>
  void for_each_read(const StagedOp& at, const Visit& visit) const {
    needs_.for_each_operand(at, [&](ValueId value) {
      const std::size_t made = find(needs_.maker(value, at.stage));
      if (made != kNowhere) visit(made);
    });
  }

 private:
  void add(const StagedOp& at) {
    const Copy& copy = needs_.all.copies[at.op];
    const bool is_backward = needs_.all.graph.ops[at.op].direction == graph::Direction::kBackward;
    Spot spot{copy.micro_batch, 0, is_backward, is_backward || copy.is_gathered_again};
    for_each_read(at, [&](std::size_t made) {
      const auto& [from, found] = entries_[made];
      if (found.pass != spot.pass) return;
      const bool is_apart = from.stage != at.stage || found.is_backward != spot.is_backward;
      spot.level = std::max(spot.level, found.level + (is_apart ? 1 : 0));
      spot.is_free = spot.is_free && (!found.is_backward || found.is_free);
    });
    entries_.push_back({at, spot});
  }

  /// Returns its entry; kNowhere: it has none (yet).
  std::size_t find(const StagedOp& at) const {
    if (at.op >= begins_.size()) return kNowhere;
    const std::size_t end = at.op + 1 < begins_.size() ? begins_[at.op + 1] : entries_.size();
    for (std::size_t entry = begins_[at.op]; entry < end; ++entry)
      if (entries_[entry].at.stage == at.stage) return entry;
    return kNowhere;
  }

  const StageNeeds& needs_;
  std::vector<Entry> entries_;
  std::vector<std::size_t> begins_;     // by operator: of its entries
  std::vector<StagedOp> first_, last_;  // before and behind all micro-batches
};

/// What the backward pass makes of the forward pass alone (the slope of a square), and a pass of
/// parameters, waits for the first that wants it: until then it would be one more tensor to keep.
/// Where devices have several regions, so does what a forward pass makes before anything has come
/// from others (a mask): with it the micro-batch would be under way.
void put_off(const StageNeeds& needs, const plan::Plan& plan, Spots& spots) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  std::vector<Spots::Entry>& entries = spots.entries();
  // By entry: least level of those of its direction that read it, in its stage.
  std::vector<std::int64_t> wanted(entries.size(), kNever);
  std::vector<char> takes_turns;
  for (const StageGraph& stage : needs.stages)
    takes_turns.push_back(find_turn(plan.replicas[stage.replica]) > 0 ? 1 : 0);
  for (std::size_t e = entries.size(); e-- > 0;) {
    auto& [at, spot] = entries[e];
    const bool may_wait = spot.is_free || (!spot.is_backward && takes_turns[at.stage] != 0);
    if (may_wait && wanted[e] != kNever && !needs.passing.contains(at))
      spot.level = std::max(spot.level, wanted[e]);
    spots.for_each_read(at, [&](std::size_t made) {
      const auto& [from, before] = entries[made];
      const Spot& now = entries[e].spot;
      if (from.stage == entries[e].at.stage && before.is_backward == now.is_backward &&
          (now.is_backward || before.pass == now.pass))
        wanted[made] = std::min(wanted[made], now.level);
    });
  }
}

/// Gradients of weights, in regions that do them late and give others gradients, too.
void find_late(const StageNeeds& needs, Spots& spots) {
  std::vector<Spots::Entry>& entries = spots.entries();
  std::vector<char> leads(entries.size(), 0);  // by entry: backward, to what others wait for
  std::vector<char> gives(needs.stages.size(), 0);
  for (std::size_t e = entries.size(); e-- > 0;) {
    const StagedOp at = entries[e].at;
    if (!entries[e].spot.is_backward || !needs.stages[at.stage].region->late_weights) continue;
    if (needs.passing.contains(at)) leads[e] = gives[at.stage] = 1;
    if (leads[e] == 0) continue;
    spots.for_each_read(at, [&](std::size_t made) {
      if (entries[made].at.stage == at.stage) leads[made] = 1;
    });
  }
  for (std::size_t e = 0; e < entries.size(); ++e)
    entries[e].spot.is_late =
        entries[e].spot.is_backward && gives[entries[e].at.stage] != 0 && leads[e] == 0;
}

struct Tasks {
  std::vector<plan::StageTask> tasks;
  std::vector<std::vector<StagedOp>> operators;
};

Tasks find_tasks(const StageNeeds& needs, Spots& spots) {
  /// Micro-batch, stage, pass, level.
  using Key = std::tuple<std::int64_t, std::size_t, plan::StageTask::Pass, std::int64_t>;
  std::map<Key, std::size_t> known;
  Tasks found;
  std::vector<std::set<std::size_t>> needed;  // by task
  std::vector<std::size_t> task_of;           // by entry
  // Of what an operator is a copy of: its last one's samples and seconds.
  std::vector<std::pair<std::int64_t, double>> seconds(needs.model.ops.size(), {-1, 0});
  const auto seconds_of = [&](std::size_t op) {
    const Copy& copy = needs.all.copies[op];
    std::pair<std::int64_t, double> none{-1, 0},
        &known = copy.of.is_none() ? none : seconds[copy.of.index()];
    if (known.first != copy.stretch.count)
      known = {copy.stretch.count,
               plan::order_seconds(graph::op_work(needs.all.graph, OpId(op), graph::Sizes{}))};
    return known.second;
  };
  for (const auto& [at, spot] : spots.entries()) {
    const auto [entry, is_new] =
        known.try_emplace({spot.pass, at.stage, spot.kind(), spot.level}, found.tasks.size());
    const std::size_t task = entry->second;
    if (is_new) {
      found.tasks.push_back({at.stage, static_cast<std::size_t>(spot.pass), spot.kind(), 0, {}});
      found.operators.emplace_back();
      needed.emplace_back();
    }
    spots.for_each_read(at, [&](std::size_t made) {
      if (task_of[made] != task) needed[task].insert(task_of[made]);
    });
    found.operators[task].push_back(at);
    const StageGraph& stage = needs.stages[at.stage];
    found.tasks[task].work +=
        seconds_of(at.op) / (static_cast<double>(stage.ranks.size()) * stage.region->speed);
    task_of.push_back(task);
  }
  for (std::size_t t = 0; t < needed.size(); ++t)
    found.tasks[t].needs.assign(needed[t].begin(), needed[t].end());
  return found;
}

std::vector<plan::TaskPlace> find_places(const StageNeeds& needs, const plan::Plan& plan,
                                         const std::vector<plan::StageTask>& tasks) {
  std::vector<plan::TaskPlace> places;
  std::vector<double> work(needs.stages.size(), 0);  // of all micro-batches
  for (const plan::StageTask& task : tasks) work[task.region] += task.work;
  for (std::size_t s = 0; s < needs.stages.size(); ++s) {
    const StageGraph& stage = needs.stages[s];
    const plan::Region& region = *stage.region;
    const plan::Replica& replica = plan.replicas[stage.replica];
    const auto behind =
        static_cast<std::int64_t>(replica.regions.size() - (s - needs.first_stage[stage.replica]));
    places.push_back({stage.ranks, region.ahead > 0 ? region.ahead : behind,
                      region.lag * work[s] / static_cast<double>(replica.micro_batches),
                      find_turn(replica), region.turns > 1});
  }
  return places;
}

void append(const std::vector<StagedOp>& operators, double begin, double end,
            OperatorOrder& order) {
  const double each = (end - begin) / static_cast<double>(operators.size());
  for (std::size_t i = 0; i < operators.size(); ++i) {
    order.operators.push_back(operators[i]);
    order.tasks.push_back(order.count);
    order.times.push_back(begin + each * static_cast<double>(i + 1));
  }
  ++order.count;
}

}  // namespace

OperatorOrder find_operator_order(const StageNeeds& needs, const plan::Plan& plan) {
  Spots spots(needs);
  put_off(needs, plan, spots);
  find_late(needs, spots);
  const Tasks found = find_tasks(needs, spots);
  const std::vector<plan::TaskPlace> places = find_places(needs, plan, found.tasks);
  OperatorOrder order;
  for (const plan::TaskPlace& place : places) order.lags.push_back(place.lag);
  append(spots.first(), 0, 0, order);
  double end = 0;
  for (const plan::OrderedTask& each : plan::order_tasks(found.tasks, places)) {
    std::vector<StagedOp> together;
    for (const std::size_t task : each.tasks)
      together.insert(together.end(), found.operators[task].begin(), found.operators[task].end());
    append(together, each.begin, each.end, order);
    end = std::max(end, each.end);
  }
  append(spots.last(), end, end, order);
  return order;
}

}  // namespace motley::synth
