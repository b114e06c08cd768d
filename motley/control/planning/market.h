#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "motley/control/planning/layers.h"
#include "motley/control/planning/planning.h"
#include "motley/elastic/market.h"
#include "motley/elastic/mix.h"

namespace motley::control {

struct MarketQuestion {
  elastic::Market market;
  elastic::Lifetimes lifetimes;  ///< observed on its machines; empty: usual lifetimes of the kinds
  double steps = 0;
  elastic::Wanted wanted;
  std::uint64_t seed = 0;
};

struct MarketAnswer {
  std::vector<elastic::PricedMix> pareto;
  std::optional<std::size_t> chosen;  ///< index in `pareto`; none: no mix fits
  std::size_t mixes = 0;
  std::size_t clusters = 0;
  std::vector<std::string> why;
};

/// Returns the step time on a cluster of rented machines; none: the training does not fit.
using ClusterStep = std::function<Result<std::optional<Seconds>>(const cluster::Cluster&)>;

/// A training of a model: a planner for its step, and the size of its checkpoint.
struct MarketJob {
  ClusterStep step;
  Bytes state;  ///< parameters and optimizer states
};
Bytes state_bytes(const graph::Graph& graph, const plan::Recipe& recipe);
/// Makes a job for the user's model, with times by PriceChoices. Ignores the question's cluster.
Result<MarketJob> model_job(const Question& question, const PlanChoices& choices,
                            const Outside& outside);
/// Makes a job whose steps are plans of stages over a layer profile.
MarketJob layer_stages_job(const LayerFiles& files, std::int64_t global_batch, const Clock& clock);

/// Prices all mixes of the market's machines (elastic/mix.h); mixes that differ only in what is
/// spot share a plan. A market with servers needs no job. Usage errors: `market.mixes`;
/// `market.clusters`, over kMostClusters would be planned; those of the job.
Result<MarketAnswer> plan_market(const MarketQuestion& question, const MarketJob* job);
inline constexpr std::size_t kMostClusters = 200;

/// Returns a mix as a cluster with a node per machine and the market's link between all.
cluster::Cluster rented_cluster(const elastic::Market& market, const elastic::Mix& mix);

Result<MarketQuestion> read_market_question(const std::string& path);

}  // namespace motley::control
