#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "motley/base/deadline.h"
#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/graph.h"
#include "motley/search/price/costs.h"
#include "motley/search/price/exchange_times.h"
#include "motley/search/spmd/choice_problem.h"
#include "motley/search/spmd/depths.h"
#include "motley/search/spmd/device_kinds.h"
#include "motley/search/spmd/prices.h"
#include "motley/search/spmd/space.h"
#include "motley/synth/lower.h"
#include "motley/synth/ranks/accumulation.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// The question: how to run the graph on some of the devices, each operator cut as is best. What it
/// points to must outlive it.
struct SpmdQuestion {
  const graph::Graph* graph = nullptr;
  const cluster::Cluster* cluster = nullptr;
  const Costs* costs = nullptr;
  synth::LowerOptions lowering;
  std::int64_t global_batch = 0;
  std::vector<DeviceId> devices;  ///< two or more
  /// Splits that are known to be good, as samples of `devices`: searched beside the others.
  std::vector<std::vector<double>> shares;
  std::int64_t micro_batches = 1;  ///< of a step, one after the other
  std::int64_t turns = 1;          ///< of these, how many take turns; divides them
  /// Of a plan that is known: what takes longer is not searched.
  Seconds known_step{std::numeric_limits<double>::infinity()};
  /// A larger lower bound is of no use.
  Seconds enough_bound{std::numeric_limits<double>::infinity()};
  int copies = 0;     ///< as the problem's (plan/planner.h)
  Deadline deadline;  ///< of the search
  /// Plans may have larger buckets than the lowering's, up to this: the bound holds for them, too.
  Bytes most_bucket_bytes{0};
  /// Of the graph, to search in its place: shardings are then of depths->searched, prices of all of
  /// the graph. Null: the graph itself.
  std::shared_ptr<const Depths> depths;

  std::int64_t micro_batch() const { return global_batch / micro_batches; }
};

/// Of a step in more micro-batches than this, plans are priced by steps in so many and in one less:
/// the program repeats itself, so time and memory go on in a line. Where micro-batches take turns,
/// by once and twice as many as do.
inline constexpr std::int64_t kPricedMicroBatches = 3;

/// The ways of a graph and the choice among them.
struct SpmdChoices {
  SpmdChoices(const graph::Graph& graph, SpmdSpace found)
      : space(std::move(found)), problem(graph, space) {}
  const SpmdSpace space;
  const ChoiceProblem problem;
};

/// A whole step on one device of a kind.
struct WholeStep {
  std::vector<double> seconds, launch;  ///< by operator: of all of it, and at least
  double total = 0;
};

/// What all searches for one question share, each found once. It serves one thread.
class SpmdStudy {
 public:
  /// Usage errors: nothing is known of a device's operators (search.missing-profile); a step of the
  /// graph cannot be done in micro-batches (synth.accumulation).
  static Result<SpmdStudy> make(const SpmdQuestion& question);

  const SpmdQuestion& question() const { return *question_; }
  /// What shardings are of.
  const graph::Graph& graph() const { return *programs_.back().graph; }
  const cluster::Device& device(DeviceId id) const { return question_->cluster->device(id); }
  const DeviceKinds& kinds() const { return kinds_; }
  const cost::ProfileCost& model() const { return *model_; }
  /// A graph by whose programs plans are priced.
  struct Programs {
    const graph::Graph* graph = nullptr;
    const graph::ShortGraph* shortened = nullptr;  ///< whose graph it is; null: the question's
    std::vector<graph::ShardingRule> rules;        ///< at a micro-batch
    /// For one micro-batch none, for up to kPricedMicroBatches that, for more the two that the line
    /// goes through.
    std::vector<synth::Accumulation> accumulations;
  };
  /// The graph that is searched last; of depths, before it the shorter one.
  const std::vector<Programs>& programs() const { return programs_; }
  /// Of a micro-batch.
  const WholeStep& whole_step(int kind, Estimate estimate = Estimate::kUsual) const {
    return whole_.at(estimate)[static_cast<std::size_t>(kind)];
  }
  /// Whole steps a second of each of the question's devices alone.
  std::vector<double> speeds() const;
  /// Which extents leave a device without a part decides what lowering has, so there are several.
  const SpmdChoices& choices(const std::vector<double>& shares);
  /// For even shares.
  const SpmdSpace& space() const { return choices_[0]->space; }
  ExchangeTimes& exchanges(const std::vector<DeviceId>& devices);
  /// Of all of the graph, in one micro-batch unless they take turns; itself if it is that.
  Result<SpmdStudy*> whole();
  SpmdPrices prices(const SpmdSpace& space, const std::vector<DeviceId>& devices,
                    std::vector<double> shares, Estimate estimate = Estimate::kUsual);
  /// By other times of exchanges than those of the devices, which must outlive them.
  SpmdPrices prices(const SpmdSpace& space, ExchangeTimes& exchanges,
                    const std::vector<DeviceId>& devices, std::vector<double> shares,
                    Estimate estimate);
  synth::Sharding sharding(const SpmdChoices& choices, const std::vector<int>& choice,
                           const std::vector<DeviceId>& devices, std::vector<double> shares) const;

 private:
  void count_once(SpmdSpace& space) const;
  Result<Programs> find_programs(const graph::ShortGraph* shortened) const;
  WholeStep find_whole_step(const DeviceKind& kind, Estimate estimate);
  std::vector<std::string> names(const std::vector<DeviceId>& devices) const;
  explicit SpmdStudy(const SpmdQuestion& question) : question_(&question) {}

  const SpmdQuestion* question_;
  std::unique_ptr<const SpmdQuestion> whole_question_;
  std::unique_ptr<SpmdStudy> whole_study_;
  std::vector<Programs> programs_;
  DeviceKinds kinds_;
  std::unique_ptr<const cost::ProfileCost> model_;
  std::vector<std::unique_ptr<const SpmdChoices>> choices_;
  std::map<Estimate, std::vector<WholeStep>> whole_;  // by kind
  std::map<std::vector<DeviceId>, std::unique_ptr<ExchangeTimes>> exchanges_;
};

}  // namespace motley::search
