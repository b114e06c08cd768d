#include "motley/search/given_planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "motley/base/text.h"
#include "motley/search/model_stages/finer_layers.h"
#include "motley/search/model_stages/stage_planner.h"
#include "motley/search/split/fixed_planners.h"
#include "motley/search/stages/costs/cluster_pools.h"
#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {
namespace {

/// Criterion for choosing among ways to share a stage.
enum class Wanted { kFastest, kSmallest };

class GivenStages {
 public:
  explicit GivenStages(const plan::Problem& problem) : problem_(problem) {}

  Result<StageOutcome> find(const StageQuestion& question, const FinerLayers& pieces) {
    pieces_ = &pieces;
    layers_.clear();
    for (std::size_t l = 0; l + 1 < pieces.first.size(); ++l)
      layers_.push_back(pieces.pieces.names[pieces.first[l]]);
    MOTLEY_ASSIGN(pools_,
                  find_pools(*problem_.cluster, problem_.devices, UnknownMemory::kUnlimited));
    StageSums sums(*question.costs);
    const StageEvaluator evaluator(sums);
    StageOutcome outcome;
    std::vector<PricedStagePlan> found;
    for (const Wanted wanted : {Wanted::kFastest, Wanted::kSmallest}) {
      MOTLEY_ASSIGN(StagePlan plan, translate(sums, wanted));
      MOTLEY_RETURN_IF_ERROR(verify_stage_plan(plan, *question.costs));
      for (StageReplica& replica : plan.replicas)
        MOTLEY_RETURN_IF_ERROR(evaluator.choose_schedule(replica));
      MOTLEY_ASSIGN(StagePrice price, evaluator.price(plan));
      ++outcome.simulated;
      if (found.empty() || found.front().plan != plan)
        found.push_back({std::move(plan), std::move(price)});
    }
    outcome.reason = StageReason::kFeasible;
    outcome.best = std::move(found.front());
    outcome.runner_ups.assign(std::make_move_iterator(found.begin() + 1),
                              std::make_move_iterator(found.end()));
    return outcome;
  }

 private:
  static Error fault(std::size_t replica, std::size_t stage, const std::string& what) {
    return Error{ErrorKind::kUsage, "search.stages",
                 fmt::format("given stages: replica {}, stage {}: {}", replica, stage, what)};
  }

  Result<StagePlan> translate(const StageSums& sums, Wanted wanted) const {
    StagePlan plan;
    for (std::size_t r = 0; r < problem_.stages.size(); ++r) {
      const plan::GivenReplica& given = problem_.stages[r];
      StageReplica replica;
      replica.samples = given.samples == 0 ? problem_.global_batch : given.samples;
      replica.micro_batch = (replica.samples + given.micro_batches - 1) / given.micro_batches;
      std::size_t first = 0;
      for (std::size_t s = 0; s < given.stages.size(); ++s) {
        auto made = find_stage(given.stages[s], first, replica.micro_batch, sums, wanted);
        if (!made) return tl::make_unexpected(fault(r, s, made.error().message));
        first = made->end;
        replica.stages.push_back(*made);
      }
      find_seats(given, replica);
      if (first != pieces_->stand.size())
        return tl::make_unexpected(fault(r, given.stages.size() - 1,
                                         fmt::format("ends before layer '{}', wanted all {} layers",
                                                     pieces_->name_first(first), layers_.size())));
      plan.replicas.push_back(std::move(replica));
    }
    std::int64_t all = 0;
    for (const StageReplica& replica : plan.replicas) all += replica.samples;
    if (all != problem_.global_batch)
      return usage_error("search.stages",
                         fmt::format("given stages: replicas have {} samples, the global batch {}",
                                     all, problem_.global_batch));
    return plan;
  }

  /// Assigns device slots: stages that name the same devices share a slot (interleaved stages).
  static void find_seats(const plan::GivenReplica& given, StageReplica& replica) {
    std::vector<std::vector<std::string>> known;
    for (const plan::GivenStage& stage : given.stages) {
      const auto at = std::find(known.begin(), known.end(), stage.devices);
      replica.seats.push_back(static_cast<std::size_t>(at - known.begin()));
      if (at == known.end()) known.push_back(stage.devices);
    }
    if (known.size() == given.stages.size()) replica.seats.clear();
  }

  Result<PlannedStage> find_stage(const plan::GivenStage& given, std::size_t first,
                                  std::int64_t micro_batch, const StageSums& sums,
                                  Wanted wanted) const {
    PlannedStage stage;
    MOTLEY_ASSIGN(const auto range, find_layers(given));
    if (range.first != first || range.second < first)
      return usage_error(
          "search.stages",
          fmt::format("layers '{}' to '{}', wanted some from '{}' on",
                      pieces_->name_first(range.first), pieces_->name_last(range.second),
                      first < pieces_->stand.size() ? pieces_->name_first(first) : "the end"));
    stage.first = first;
    stage.end = range.second + 1;
    MOTLEY_ASSIGN(const std::vector<UnitPart> parts, place(given.devices, stage));
    const StageCosts& costs = sums.costs();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t unit = 0; unit < costs.units().size(); ++unit) {
      if (costs.units()[unit].parts != parts || !costs.knows(unit, micro_batch)) continue;
      const double takes =
          wanted == Wanted::kFastest
              ? sums.work(unit, micro_batch).pass(stage.first, stage.end)
              : static_cast<double>(sums.bytes(unit, stage.first, stage.end).total(micro_batch, 1));
      if (takes >= least) continue;
      least = takes;
      stage.unit = unit;
    }
    if (!(least < std::numeric_limits<double>::infinity()))
      return usage_error("search.stages",
                         fmt::format("nobody knows how {} share micro-batches of {}",
                                     join(given.devices, ", "), micro_batch));
    return stage;
  }

  /// Finds the first or last piece of that name; if several layers have it, in the last of them.
  Result<std::size_t> find_piece(std::string_view name,
                                 std::string (FinerLayers::*name_of)(std::size_t) const) const {
    for (std::size_t piece = pieces_->stand.size(); piece-- > 0;)
      if ((pieces_->*name_of)(piece) == name) return piece;
    return usage_error("search.stages", fmt::format("the model has no layer '{}'{}", name,
                                                    suggestion_clause(name, layers_)));
  }

  /// Finds the first and the last piece.
  Result<std::pair<std::size_t, std::size_t>> find_layers(const plan::GivenStage& given) const {
    const std::vector<std::size_t>& first_piece = pieces_->first;
    if (const auto* numbers = std::get_if<std::pair<std::size_t, std::size_t>>(&given.layers)) {
      const auto [first, last] = *numbers;
      if (std::max(first, last) < layers_.size())
        return std::pair(first_piece[first], first_piece[last + 1] - 1);
      return usage_error("search.stages", fmt::format("layers {} to {}, wanted numbers below {}",
                                                      first, last, layers_.size()));
    }
    const std::string_view text = std::get<std::string>(given.layers);
    constexpr std::string_view kTo = " to ";
    const std::size_t at = text.find(kTo);
    const bool is_one = at == std::string_view::npos;
    MOTLEY_ASSIGN(const std::size_t first,
                  find_piece(text.substr(0, at), &FinerLayers::name_first));
    MOTLEY_ASSIGN(const std::size_t last, find_piece(is_one ? text : text.substr(at + kTo.size()),
                                                     &FinerLayers::name_last));
    return std::pair(first, last);
  }

  /// Sets a stage's host and slots. Returns the number of its devices from each pool.
  Result<std::vector<UnitPart>> place(const std::vector<std::string>& names,
                                      PlannedStage& stage) const {
    std::vector<DeviceId> devices;
    for (const std::string& name : names) {
      MOTLEY_ASSIGN(const DeviceId device, cluster::find_device(*problem_.cluster, name));
      if (std::find(problem_.devices.begin(), problem_.devices.end(), device) ==
          problem_.devices.end())
        return usage_error("search.stages", fmt::format("device {} is left out", name));
      devices.push_back(device);
    }
    std::vector<UnitPart> parts;
    std::set<int> hosts;  // host ids in the cluster
    std::size_t placed = 0;
    for (std::size_t pool = 0; pool < pools_.pools.size(); ++pool) {
      const std::vector<DeviceId>& all = pools_.devices[pool];
      std::vector<DeviceId> own;
      for (const DeviceId device : devices)
        if (std::find(all.begin(), all.end(), device) != all.end()) own.push_back(device);
      const auto found = std::search(all.begin(), all.end(), own.begin(), own.end());
      if (own.empty() || found == all.end()) continue;
      const auto at = static_cast<int>(found - all.begin());
      const int per_host = pools_.pools[pool].per_host, slot = at % per_host;
      if (slot + static_cast<int>(own.size()) > per_host) continue;
      stage.host = at / per_host;
      hosts.insert(pools_.pools[pool].first_host + stage.host);
      if (parts.empty())
        stage.slot = slot;
      else
        stage.more_slots.push_back(slot);
      parts.push_back({pool, static_cast<int>(own.size())});
      placed += own.size();
    }
    if (placed == devices.size() && hosts.size() == 1) return parts;
    return usage_error("search.stages",
                       fmt::format("devices {}: wanted ones of one host, alike ones in their order",
                                   join(names, ", ")));
  }

  const plan::Problem& problem_;
  const FinerLayers* pieces_ = nullptr;
  std::vector<std::string> layers_;
  ClusterPools pools_;
};

}  // namespace

Result<plan::PlanOutcome> GivenPlanner::plan(const plan::Problem& problem) const {
  if (inputs_.graph == nullptr || inputs_.costs == nullptr)
    return usage_error("search.stages", "given stages: nobody has times of the model's operators");
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, find_baselines(inputs_, problem));
  outcome.planner = name();
  outcome.why.clear();  // those are about the equal split
  GivenStages given(problem);
  MOTLEY_RETURN_IF_ERROR(
      consider_stages(inputs_, problem, outcome,
                      {StageCuts::kAtPieces, UnitKinds::kSeveral,
                       [&](const StageQuestion& question, const FinerLayers& pieces) {
                         return given.find(question, pieces);
                       }}));
  outcome.why.push_back(
      "stages as they were given; how devices share them and in which order "
      "micro-batches pass is Motley's");
  return outcome;
}

}  // namespace motley::search
