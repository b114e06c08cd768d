#include "motley/search/stages/moved_cuts.h"

#include <algorithm>
#include <utility>

namespace motley::search {
namespace {

bool are_cut_identical(const StageReplica& one, const StageReplica& other) {
  return one.seats == other.seats &&
         std::equal(one.stages.begin(), one.stages.end(), other.stages.begin(), other.stages.end(),
                    [](const PlannedStage& a, const PlannedStage& b) {
                      return a.first == b.first && a.end == b.end && a.unit == b.unit;
                    });
}

std::vector<std::vector<std::size_t>> group_identical(const StagePlan& plan) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const auto known = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return are_cut_identical(plan.replicas[group.front()], plan.replicas[r]);
    });
    if (known == groups.end())
      groups.push_back({r});
    else
      known->push_back(r);
  }
  return groups;
}

/// Moves the cuts after stages [from, to]; returns false if a stage would be empty.
bool move(std::vector<PlannedStage>& stages, std::size_t from, std::size_t to, int by) {
  for (std::size_t s = from; s <= to; ++s)
    stages[s].end = stages[s + 1].first =
        static_cast<std::size_t>(static_cast<std::int64_t>(stages[s].end) + by);
  return std::all_of(stages.begin(), stages.end(), [](const PlannedStage& stage) {
    return static_cast<std::int64_t>(stage.first) < static_cast<std::int64_t>(stage.end);
  });
}

class Moving {
 public:
  Moving(const StageEvaluator& evaluator, const CutMoves& moves, PricedStagePlan& priced)
      : evaluator_(evaluator), moves_(moves), now_(priced), left_(moves.passes) {}

  std::int64_t run() {
    const auto groups = group_identical(now_.plan);
    for (bool has_moved = true; has_moved && left_ > 0;) {
      has_moved = false;
      for (const std::vector<std::size_t>& group : groups) {
        const std::size_t cuts = now_.plan.replicas[group.front()].stages.size() - 1;
        for (std::size_t width = 1; width <= std::min(moves_.together, cuts); ++width)
          for (std::size_t from = 0; from + width <= cuts; ++from)
            for (const int step : moves_.steps)
              for (const int by : {-step, step})
                has_moved = try_move(group, from, from + width - 1, by) || has_moved;
      }
    }
    return simulated_;
  }

 private:
  bool try_move(const std::vector<std::size_t>& group, std::size_t from, std::size_t to, int by) {
    StagePlan tried = now_.plan;
    for (const std::size_t r : group)
      if (!move(tried.replicas[r].stages, from, to, by)) return false;
    for (const StageReplica& replica : tried.replicas) left_ -= count_passes(replica);
    if (left_ < 0) return false;
    ++simulated_;
    auto price = evaluator_.price(tried);
    if (!price || !price->fits ||
        price->step.value >= now_.price.step.value * (1 - moves_.smallest))
      return false;
    now_ = {std::move(tried), *std::move(price)};
    return true;
  }

  const StageEvaluator& evaluator_;
  const CutMoves& moves_;
  PricedStagePlan& now_;
  std::int64_t left_, simulated_ = 0;
};

}  // namespace

std::int64_t move_cuts(const StageEvaluator& evaluator, const CutMoves& moves,
                       PricedStagePlan& priced) {
  return Moving(evaluator, moves, priced).run();
}

}  // namespace motley::search
