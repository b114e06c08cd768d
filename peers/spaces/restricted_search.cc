#include "peers/spaces/restricted_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "motley/search/stages/shapes/sample_bound.h"

namespace motley::peers {
namespace {

constexpr std::size_t kDeepest = 16;
constexpr std::size_t kPlansKept = 4;

}  // namespace

int RestrictedSearch::devices() const {
  int all = 0;
  for (const search::DevicePool& pool : costs().pools()) all += pool.devices;
  return all;
}

std::vector<int> RestrictedSearch::degrees() const {
  std::set<int> degrees;
  for (const search::StageUnit& unit : costs().units()) degrees.insert(unit.degree());
  return {degrees.begin(), degrees.end()};
}

std::size_t RestrictedSearch::most_stages() const { return std::min(kDeepest, costs().layers()); }

std::size_t RestrictedSearch::ways(int degree) const {
  std::size_t most = 0;
  for (std::size_t pool = 0; pool < costs().pools().size(); ++pool) {
    const auto count = std::count_if(
        costs().units().begin(), costs().units().end(), [&](const search::StageUnit& unit) {
          return unit.pool() == pool && unit.degree() == degree && !unit.recomputes;
        });
    most = std::max(most, static_cast<std::size_t>(count));
  }
  return most;
}

std::optional<std::size_t> RestrictedSearch::unit(std::size_t pool, int degree, std::size_t way,
                                                  bool recomputes) const {
  std::optional<std::size_t> found;
  for (std::size_t u = 0; u < costs().units().size(); ++u) {
    if (costs().units()[u] != search::StageUnit{pool, degree, recomputes}) continue;
    found = u;  // the last one where there are fewer ways
    if (way-- == 0) break;
  }
  return found;
}

std::vector<std::int64_t> RestrictedSearch::even_samples(std::size_t replicas) const {
  const auto count = static_cast<std::int64_t>(replicas);
  std::vector<std::int64_t> samples(replicas, batch() / count);
  for (std::int64_t r = 0; r < batch() % count; ++r) ++samples[static_cast<std::size_t>(r)];
  return samples;
}

double RestrictedSearch::best_step() const {
  return best_.empty() ? std::numeric_limits<double>::infinity() : best_.front().price.step.value;
}

void RestrictedSearch::offer(search::StagePlan plan, search::StagePlacing placing) {
  std::erase_if(plan.replicas,
                [](const search::StageReplica& replica) { return replica.samples == 0; });
  const bool is_divided =
      std::all_of(plan.replicas.begin(), plan.replicas.end(), search::has_full_ends);
  if (!is_divided || plan.replicas.empty() || !search::place_stages(plan, costs(), placing)) return;
  ++simulated_;
  auto price = search::StageEvaluator(sums_).price(plan);
  if (!price) {  // a missing link, or an unknown smaller micro-batch
    refused_.insert(price.error().message);
    return;
  }
  if (!price->fits) return;
  const auto at = std::find_if(
      best_.begin(), best_.end(),
      [&](const search::PricedStagePlan& other) { return price->step < other.price.step; });
  if (std::any_of(best_.begin(), at, [&](const auto& other) { return other.plan == plan; })) return;
  best_.insert(at, {std::move(plan), *std::move(price)});
  if (best_.size() > kPlansKept) best_.pop_back();
}

search::StageOutcome RestrictedSearch::finish(StageSpace space) {
  search::StageOutcome outcome;
  outcome.why = costs().notes();
  outcome.simulated = simulated_;
  outcome.lower_bound = Seconds(search::rate_bound(sums_, batch()) * (1 - 1e-9));
  const std::string_view title = stage_space_name(space).title;
  if (best_.empty()) {
    outcome.why.push_back(fmt::format("no plan of {} was found that fits", title));
    outcome.why.insert(outcome.why.end(), refused_.begin(), refused_.end());
    return outcome;
  }
  outcome.why.push_back(
      fmt::format("of {} alone; the bound holds for all plans, by rates alone", title));
  outcome.reason = search::StageReason::kFeasible;
  outcome.best = std::move(best_.front());
  outcome.lower_bound = std::min(outcome.lower_bound, outcome.best->price.step);
  outcome.runner_ups.assign(std::make_move_iterator(best_.begin() + 1),
                            std::make_move_iterator(best_.end()));
  return outcome;
}

}  // namespace motley::peers
