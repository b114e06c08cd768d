#include "motley/search/model_stages/stage_translation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "motley/search/model_stages/tied_weights.h"
#include "motley/search/stages/stage_lag.h"

namespace motley::search {

void StageTranslation::assume(const LayerAssumption& assumption) {
  if (sums_ && costs_.assumption() == assumption && units_ == costs_.units().size()) return;
  costs_.assume(assumption);
  sums_.emplace(costs_);
  units_ = costs_.units().size();
}

plan::Plan StageTranslation::translate(const PricedStagePlan& found, const Again& again) const {
  plan::Plan plan = plan::blank_plan(problem_);
  for (std::size_t r = 0; r < found.plan.replicas.size(); ++r) {
    const StageReplica& replica = found.plan.replicas[r];
    plan::Replica made;
    made.samples = replica.samples;
    made.micro_batches = static_cast<std::int64_t>(micro_batch_sizes(replica).size());
    for (std::size_t s = 0; s < replica.stages.size(); ++s) {
      const PlannedStage& stage = replica.stages[s];
      plan::Region region = costs_.regions().region(stage, again[r][s]);
      region.speed = costs_.regions().speed(stage, replica.micro_batch,
                                            costs_.work(stage.unit, replica.micro_batch));
      if (replica.stages.size() > 1) {
        region.ahead = found.price.spans[r][s].in_flight;
        region.lag = find_lag(*sums_, replica, s);
      }
      made.regions.push_back(std::move(region));
    }
    plan.replicas.push_back(std::move(made));
  }
  scale_speeds(100, plan);
  return plan;
}

plan::Plan StageTranslation::give_tied(const plan::Plan& plan) const {
  return costs_.tied() ? give_tied_weights(graph_, plan) : plan;
}

Again StageTranslation::nothing_again(const StagePlan& plan) const {
  Again again;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    std::vector<std::vector<Recompute>>& stages = again.emplace_back();
    for (std::size_t s = 0; s < plan.replicas[r].stages.size(); ++s) {
      const PlannedStage& stage = plan.replicas[r].stages[s];
      const bool is_given = !problem_.stages.empty() && problem_.stages[r].stages[s].recomputes;
      stages.emplace_back(costs_.pieces().parts(stage.first, stage.end).size(),
                          is_given ? Recompute::kAll : Recompute::kNothing);
    }
  }
  return again;
}

std::vector<std::vector<std::string>> StageTranslation::name_stages(const StagePlan& plan) const {
  const FinerLayers& pieces = costs_.pieces();
  std::vector<std::vector<std::string>> found;
  for (const StageReplica& replica : plan.replicas) {
    std::vector<std::string>& stages = found.emplace_back();
    for (const PlannedStage& stage : replica.stages) {
      const std::string first = pieces.name_first(stage.first),
                        last = pieces.name_last(stage.end - 1);
      stages.push_back(first == last ? first : first + " to " + last);
    }
  }
  return found;
}

std::string shape_text(const plan::Plan& plan) {
  std::vector<std::size_t> depths;
  bool is_interleaved = false, is_paired = false;
  for (const plan::Replica& replica : plan.replicas) {
    depths.push_back(replica.regions.size());
    std::set<std::vector<DeviceId>> devices;
    for (const plan::Region& region : replica.regions) {
      is_interleaved = !devices.insert(region.devices).second || is_interleaved;
      is_paired = is_paired || region.turns > 1;
    }
  }
  const std::size_t count = depths.size();
  std::sort(depths.rbegin(), depths.rend());
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  return fmt::format("{} replica{} of {} stage{}{}{}{}", count, count == 1 ? "" : "s",
                     fmt::join(depths, " and "), depths == std::vector<std::size_t>{1} ? "" : "s",
                     is_interleaved ? ", interleaved" : "",
                     is_paired ? ", micro-batches taking turns" : "",
                     plan.owners.empty() ? "" : ", states shared");
}

}  // namespace motley::search
