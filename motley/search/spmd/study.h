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

/// The question: the best way to run the graph on some of the devices, with a split per operator.
/// All that it points to must outlive it.
struct SpmdQuestion {
  const graph::Graph* graph = nullptr;
  const cluster::Cluster* cluster = nullptr;
  const Costs* costs = nullptr;
  synth::LowerOptions lowering;
  std::int64_t global_batch = 0;
  std::vector<DeviceId> devices;  ///< two or more
  /// Known good splits, as samples of `devices`; searched besides the others.
  std::vector<std::vector<double>> shares;
  std::int64_t micro_batches = 1;  ///< of a step, one after the other
  std::int64_t turns = 1;          ///< interleaved ones; divides micro_batches
  /// Of a known plan: slower ones are not searched.
  Seconds known_step{std::numeric_limits<double>::infinity()};
  /// A larger lower bound is useless.
  Seconds enough_bound{std::numeric_limits<double>::infinity()};
  int copies = 0;        ///< mirrors, as in the problem (plan/planner.h)
  bool carries = false;  ///< the bound covers plans whose exchanges end in the next step, too
  Deadline deadline;
  /// Plans may have larger buckets than the lowering's, up to this: the bound covers them, too.
  Bytes most_bucket_bytes{0};
  /// Short graphs to search instead: shardings are then of depths->searched, prices of the whole
  /// graph. Null: the graph itself.
  std::shared_ptr<const Depths> depths;

  std::int64_t micro_batch() const { return global_batch / micro_batches; }
};

/// micro-batches; steps of more are extrapolated from this many and one less, as the program
/// repeats itself and time and memory grow linearly. With interleaving, from one and two rounds of
/// them.
inline constexpr std::int64_t kPricedMicroBatches = 3;

struct SpmdChoices {
  SpmdChoices(const graph::Graph& graph, SpmdSpace found)
      : space(std::move(found)), problem(graph, space) {}
  const SpmdSpace space;
  const ChoiceProblem problem;
};

struct WholeStep {
  std::vector<double> seconds, launch;  ///< by operator: in all, and at least
  double total = 0;
};

/// Results shared by all searches for one question, each computed once. Serves one thread.
class SpmdStudy {
 public:
  /// Usage errors: a device's operators are unknown (search.missing-profile), or the graph's step
  /// cannot run in micro-batches (synth.accumulation).
  static Result<SpmdStudy> make(const SpmdQuestion& question);

  const SpmdQuestion& question() const { return *question_; }
  /// The graph of the shardings.
  const graph::Graph& graph() const { return *programs_.back().graph; }
  const cluster::Device& device(DeviceId id) const { return question_->cluster->device(id); }
  const DeviceKinds& kinds() const { return kinds_; }
  const cost::CostModel& model() const { return *model_; }
  /// A graph whose programs price plans.
  struct Programs {
    const graph::Graph* graph = nullptr;
    const graph::ShortGraph* shortened = nullptr;  ///< source of the graph; null: the question's
    std::vector<graph::ShardingRule> rules;        ///< at a micro-batch
    /// Empty for one micro-batch; else up to kPricedMicroBatches, or the two to extrapolate from.
    std::vector<synth::Accumulation> accumulations;
  };
  /// The searched graph is last; with depths, the shorter one is before it.
  const std::vector<Programs>& programs() const { return programs_; }
  /// Of a micro-batch.
  const WholeStep& whole_step(int kind, Estimate estimate = Estimate::kUsual) const {
    return whole_.at(estimate)[static_cast<std::size_t>(kind)];
  }
  /// Returns whole steps per second of each of the question's devices alone.
  std::vector<double> speeds() const;
  /// Returns the choices for shares; they differ by which extents leave a device without a part.
  const SpmdChoices& choices(const std::vector<double>& shares);
  const SpmdSpace& space() const { return choices_[0]->space; }
  ExchangeTimes& exchanges(const std::vector<DeviceId>& devices);
  /// Returns the study of the whole graph in one micro-batch, or as interleaved; maybe itself.
  Result<SpmdStudy*> whole();
  SpmdPrices prices(const SpmdSpace& space, const std::vector<DeviceId>& devices,
                    std::vector<double> shares, Estimate estimate = Estimate::kUsual);
  /// With exchange times other than the devices', which must outlive the result.
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
  std::unique_ptr<const cost::CostModel> model_;
  std::vector<std::unique_ptr<const SpmdChoices>> choices_;
  std::map<Estimate, std::vector<WholeStep>> whole_;  // by kind
  std::map<std::vector<DeviceId>, std::unique_ptr<ExchangeTimes>> exchanges_;
};

}  // namespace motley::search
