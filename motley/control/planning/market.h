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

/// What to rent for a training of so many steps.
struct MarketQuestion {
  elastic::Market market;
  elastic::Lifetimes lifetimes;  ///< what was seen of its machines; empty: the usual kinds
  double steps = 0;
  elastic::Wanted wanted;
  std::uint64_t seed = 0;
};

struct MarketAnswer {
  std::vector<elastic::PricedMix> pareto;
  std::optional<std::size_t> chosen;  ///< of them; none: none fits
  std::size_t mixes = 0;              ///< that were looked at
  std::size_t clusters = 0;           ///< that were planned for them
  std::vector<std::string> why;       ///< sentences for people
};

/// A step on a cluster of rented machines; none: it does not fit there.
using ClusterStep = std::function<Result<std::optional<Seconds>>(const cluster::Cluster&)>;

/// A training of a model: its step by a planner, and what a checkpoint of it holds.
struct MarketJob {
  ClusterStep step;
  Bytes state;  ///< parameters and optimizer states
};
/// Parameters and optimizer states.
Bytes state_bytes(const graph::Graph& graph, const plan::Recipe& recipe);
/// Parts of a model of one's own that nobody timed are measured or modelled as the choices say
/// (PriceChoices). The question's cluster is ignored.
Result<MarketJob> model_job(const Question& question, const PlanChoices& choices,
                            const Outside& outside);
/// By plans of stages of a layer profile.
MarketJob layer_stages_job(const LayerFiles& files, std::int64_t global_batch, const Clock& clock);

/// Prices all mixes of the market's machines (elastic/mix.h). Mixes that differ in what is spot
/// alone share a plan. A market with servers tells steps itself and wants no job. Usage errors:
/// `market.mixes`, `market.clusters` where over kMostClusters would be planned, those of the job.
Result<MarketAnswer> plan_market(const MarketQuestion& question, const MarketJob* job);
inline constexpr std::size_t kMostClusters = 200;

/// The machines of a mix as a cluster, each a node, all linked as the market says.
cluster::Cluster rented_cluster(const elastic::Market& market, const elastic::Mix& mix);

/// Reads the market and the lifetimes it names.
Result<MarketQuestion> read_market_question(const std::string& path);

}  // namespace motley::control
