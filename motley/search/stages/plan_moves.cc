#include "motley/search/stages/plan_moves.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace motley::search {
namespace {

class Mover {
 public:
  Mover(const StagePlan& plan, const StageCosts& costs) : plan_(plan), costs_(costs) {
    const std::vector<int> used = used_devices(plan, costs);
    for (std::size_t unit = 0; unit < costs.units().size(); ++unit) {
      const std::vector<UnitPart>& parts = costs.units()[unit].parts;
      if (std::all_of(parts.begin(), parts.end(), [&](const UnitPart& part) {
            return part.devices <= costs.pools()[part.pool].devices - used[part.pool];
          }))
        idle_.push_back(unit);
    }
  }

  std::vector<MovedPlan> run() {
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
      for (std::size_t s = 0; s < plan_.replicas[r].stages.size(); ++s) change_stage(r, s);
      change_micro_batch(r);
      give_samples(r);
    }
    exchange_units();
    std::erase_if(moves_, [&](const MovedPlan& moved) {
      return std::any_of(moved.changed.begin(), moved.changed.end(),
                         [&](std::size_t r) { return !is_of_space(moved.plan.replicas[r]); });
    });
    return std::move(moves_);
  }

 private:
  bool is_of_space(const StageReplica& replica) const {
    return has_full_ends(replica) &&
           std::none_of(replica.stages.begin(), replica.stages.end(), [&](const auto& stage) {
             return find_unknown_size(replica, stage.unit, costs_).has_value();
           });
  }

  /// Adds the plan with replica r changed by `change`.
  template <typename Change>
  void add(std::size_t r, const Change& change) {
    MovedPlan moved{plan_, {r}};
    change(moved.plan.replicas[r]);
    moves_.push_back(std::move(moved));
  }

  void change_stage(std::size_t r, std::size_t s) {
    const std::vector<PlannedStage>& stages = plan_.replicas[r].stages;
    const PlannedStage& stage = stages[s];
    for (const std::size_t unit : idle_) {
      add(r, [&](StageReplica& replica) { replica.stages[s].unit = unit; });
      for (std::size_t cut = stage.first + 1; cut < stage.end; ++cut)
        for (const bool is_in_front : {false, true})
          add(r, [&](StageReplica& replica) {
            PlannedStage first = stage, second = stage;
            first.end = second.first = cut;
            (is_in_front ? first : second).unit = unit;
            replica.stages[s] = first;
            replica.stages.insert(replica.stages.begin() + static_cast<std::ptrdiff_t>(s) + 1,
                                  second);
          });
    }
    if (s + 1 == stages.size()) return;
    for (const std::size_t kept : {s, s + 1})
      add(r, [&](StageReplica& replica) {
        replica.stages[s].unit = stages[kept].unit;
        replica.stages[s].end = stages[s + 1].end;
        replica.stages.erase(replica.stages.begin() + static_cast<std::ptrdiff_t>(s) + 1);
      });
    for (const int by : {-1, 1}) {
      std::vector<PlannedStage> moved = stages;
      if (move_cut(moved, s, by)) add(r, [&](StageReplica& replica) { replica.stages = moved; });
    }
  }

  void change_micro_batch(std::size_t r) {
    for (const std::int64_t batch : costs_.micro_batches())
      if (batch != plan_.replicas[r].micro_batch && batch <= plan_.replicas[r].samples)
        add(r, [&](StageReplica& replica) { replica.micro_batch = batch; });
  }

  /// Moves samples to another replica or a new one; if it moves all, the replica is removed.
  void give_samples(std::size_t r) {
    const StageReplica& from = plan_.replicas[r];
    std::vector<std::int64_t> amounts = {1, from.micro_batch, from.samples};
    std::sort(amounts.begin(), amounts.end());
    amounts.erase(std::unique(amounts.begin(), amounts.end()), amounts.end());
    for (const std::int64_t amount : amounts) {
      if (amount > from.samples) continue;
      for (std::size_t to = 0; to < plan_.replicas.size(); ++to) {
        if (to == r) continue;
        MovedPlan moved{plan_, {to}};
        moved.plan.replicas[to].samples += amount;
        moved.plan.replicas[r].samples -= amount;
        if (amount < from.samples) {
          moved.changed.push_back(r);
        } else {
          moved.plan.replicas.erase(moved.plan.replicas.begin() + static_cast<std::ptrdiff_t>(r));
          moved.changed[0] -= to > r ? 1 : 0;
        }
        moves_.push_back(std::move(moved));
      }
      if (amount == from.samples) continue;
      for (const std::size_t unit : idle_) {
        MovedPlan moved{plan_, {r, plan_.replicas.size()}};
        moved.plan.replicas[r].samples -= amount;
        StageReplica added{
            {{0, costs_.layers(), unit}}, std::min(amount, from.micro_batch), amount};
        moved.plan.replicas.push_back(std::move(added));
        moves_.push_back(std::move(moved));
      }
    }
  }

  void exchange_units() {
    std::vector<std::pair<std::size_t, std::size_t>> all;  // replica, stage
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r)
      for (std::size_t s = 0; s < plan_.replicas[r].stages.size(); ++s) all.emplace_back(r, s);
    for (std::size_t a = 0; a < all.size(); ++a)
      for (std::size_t b = a + 1; b < all.size(); ++b) {
        MovedPlan moved{plan_, {all[a].first, all[b].first}};
        std::size_t& first = moved.plan.replicas[all[a].first].stages[all[a].second].unit;
        std::size_t& second = moved.plan.replicas[all[b].first].stages[all[b].second].unit;
        if (first == second) continue;
        std::swap(first, second);
        moves_.push_back(std::move(moved));
      }
  }

  const StagePlan& plan_;
  const StageCosts& costs_;
  std::vector<std::size_t> idle_;  // units with free devices
  std::vector<MovedPlan> moves_;
};

}  // namespace

std::vector<MovedPlan> find_moves(const StagePlan& plan, const StageCosts& costs) {
  return Mover(plan, costs).run();
}

}  // namespace motley::search
