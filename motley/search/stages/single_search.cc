#include "motley/search/stages/single_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "motley/search/stages/costs/merged_layers.h"
#include "motley/search/stages/interleaving.h"
#include "motley/search/stages/plan_moves.h"
#include "motley/search/stages/plan_proof.h"
#include "motley/search/stages/shapes/fastest_shape.h"
#include "motley/search/stages/shapes/sample_bound.h"
#include "motley/search/stages/shapes/whole_replicas.h"

namespace motley::search {
namespace {

constexpr double kGrowth = 1.3;  // of a time that is too short
/// Seconds that no step takes: what takes so long cannot be done, as where a link is missing.
constexpr double kTooLong = 1e15;
constexpr double kBoundPrecision =
    5e-3;                          // between a time that is proved impossible and one that is not
constexpr double kDescent = 0.02;  // of a time that is long enough
constexpr double kReseed = 4;      // times the least time, from where on shapes are looked for anew
constexpr std::size_t kMostOffers = 64;   // shapes that are put together
constexpr std::size_t kMostBundled = 12;  // of them, that fill hosts with first stages
constexpr double kAlignedTimes[] = {1.0, 1.15};
constexpr std::size_t kMostEven = 16, kMostAligned = 12, kMostAlignedOffers = 16;
constexpr std::size_t kShorter[] = {1, 2, 4, 8};  // stages
constexpr double kDiscount = 0.85;                // at which shapes are collected
constexpr double kSlowest = 1.5;      // times what is known, of one replica that is worth finding
constexpr int kFewDevices = 8;        // of which plans are improved by single moves
constexpr std::size_t kImproved = 8;  // plans
constexpr std::int64_t kMovedPasses =
    400'000;  // of micro-batches through stages, simulated for that
constexpr std::int64_t kLeveledPasses = 200'000;
constexpr double kSmallestGain = 1e-6;  // of the step, that is an improvement
constexpr double kHeavyMessages = 4;    // times what they take
constexpr std::size_t kLeastUse = 4;    // one of how many devices it has to use
constexpr double kTooSlow = 1.03;       // times the best plan so far
constexpr double kTooSlowFew = 1.25, kTooSlowDepth = 1.3;
constexpr std::size_t kClimbs = 6;          // mixes that are improved by other counts
constexpr std::int64_t kMostClimbed = 400;  // tried for that
constexpr double kSmallestClimb = 1e-3;
constexpr std::size_t kRefined = 3;
constexpr double kSmallestMove = 1e-4;
constexpr std::size_t kRunnerUps = 4, kTurnedUps = 3;
constexpr std::size_t kTurned = 6;  // plans whose devices are given stages in turns
constexpr std::int64_t kTurnedPasses = 300'000;
constexpr double kTurnedFill = 0.3;     // of a pass that fills a pipeline, in turns
constexpr std::size_t kMostPriced = 8;  // mixes that are tuned and simulated whole

/// Shapes in whole numbers.
struct Mix {
  std::vector<std::pair<ReplicaShape, int>> parts;
  bool operator<(const Mix& other) const { return parts < other.parts; }
};

/// Places are not given.
StageReplica replica_of(const ReplicaShape& shape, std::int64_t samples) {
  StageReplica replica{{}, shape.micro_batch, samples};
  for (const ShapeStage& stage : shape.stages)
    replica.stages.push_back({stage.first, stage.end, stage.unit});
  return replica;
}

ReplicaShape shape_of(const StageReplica& replica) {
  ReplicaShape shape{{}, replica.micro_batch};
  for (const PlannedStage& stage : replica.stages)
    shape.stages.push_back({stage.first, stage.end, stage.unit});
  return shape;
}

/// Replicas of a mix without samples; `first_of`: each part's first one.
StagePlan plan_of(const std::vector<std::pair<ReplicaShape, int>>& parts,
                  std::vector<std::size_t>& first_of) {
  StagePlan plan;
  for (const auto& [shape, count] : parts) {
    first_of.push_back(plan.replicas.size());
    plan.replicas.insert(plan.replicas.end(), static_cast<std::size_t>(count),
                         replica_of(shape, 1));
  }
  return plan;
}

/// By rising seconds.
using RankedMixes = std::vector<std::pair<double, Mix>>;

bool is_one_replica(const Mix& mix) {
  return mix.parts.size() == 1 && mix.parts.front().second == 1;
}

enum class LayerMoves { kTried, kLeft };
/// Pipelines of 1, 2, 3 or 4, 5 to 8, ... stages.
/// Where its stages end.
std::vector<std::size_t> ends_of(const ReplicaShape& shape) {
  std::vector<std::size_t> ends;
  for (const ShapeStage& stage : shape.stages) ends.push_back(stage.end);
  return ends;
}

int depth_class(std::size_t stages) {
  int depth = 0;
  for (std::size_t most = 1; most < stages; most *= 2) ++depth;
  return depth;
}

int depth_class(const Mix& mix) {
  std::size_t deepest = 0;
  for (const auto& [shape, count] : mix.parts) deepest = std::max(deepest, shape.stages.size());
  return depth_class(deepest);
}

int depth_class(const StagePlan& plan) {
  std::size_t deepest = 0;
  for (const StageReplica& replica : plan.replicas)
    deepest = std::max(deepest, replica.stages.size());
  return depth_class(deepest);
}

std::int64_t count_passes(const StagePlan& plan) {
  std::int64_t sum = 0;
  for (const StageReplica& replica : plan.replicas) sum += count_passes(replica);
  return sum;
}

enum MixBy { kMixModel, kMixSimulated };

/// Largest time that is proved too short, smallest that is not.
struct Bracket {
  double impossible = 0, possible = 0;
  SampleAnswer answer;  // at `possible`
};

enum class Proofs { kToPrecision, kFirstOnly };

/// From where the shapes known so far are enough downwards, as long as it goes: questions that are
/// answered yes are cheap, a no has to be proved. With the first no it may end.
Bracket descend(SampleBound& bound, double least, std::int64_t samples, Proofs proofs) {
  Bracket bracket{least, least, {}};
  while (!bound.is_known_possible(bracket.possible, samples)) {
    bracket.possible *= kGrowth;
    if (!(bracket.possible > 0 && bracket.possible < kTooLong)) {
      bracket.possible = kTooLong;
      return bracket;
    }
    // Shapes of more devices than there are may be all that less time knew.
    if (bracket.possible > kReseed * least) bound.seed(bracket.possible, samples);
  }
  double below = bracket.possible / kGrowth;
  while (bracket.possible > below * (1 + kBoundPrecision)) {
    const double middle = std::sqrt(bracket.possible * below);
    (bound.is_known_possible(middle, samples) ? bracket.possible : below) = middle;
  }
  bracket.answer = bound.ask(bracket.possible, samples);
  for (double step = kDescent; bracket.possible > bracket.impossible * (1 + kBoundPrecision);) {
    const double tried =
        std::max(bracket.possible / (1 + step), std::sqrt(bracket.impossible * bracket.possible));
    SampleAnswer answer = bound.ask(tried, samples);
    if (answer.is_possible) {
      bracket.possible = tried;
      bracket.answer = std::move(answer);
    } else {
      bracket.impossible = tried;
      step = kDescent / 4;
      if (proofs == Proofs::kFirstOnly) break;
    }
  }
  return bracket;
}

/// The least time, from some on, in which as many samples are done, if what is done does not fall
/// with it; infinity: none.
template <typename Samples>
double least_time(double from, std::int64_t wanted, const Samples& done_in) {
  double below = from, above = from;
  while (done_in(above) < wanted) {
    below = above;
    above *= kGrowth;
    if (!(above > 0 && above < kTooLong)) return std::numeric_limits<double>::infinity();
  }
  for (int i = 0; i < 30 && above > below * (1 + 1e-6); ++i) {
    const double middle = (below + above) / 2;
    (done_in(middle) < wanted ? below : above) = middle;
  }
  return above;
}

/// Plans by their number of replicas. Where there are more copies of a layer than one host has
/// devices, some lie in other hosts, and a ring over n of them sends 2 (n - 1) / n of the gradients
/// out of each.
struct ReplicaClass {
  double most = 0;    // replicas
  double rounds = 0;  // ShapeModel::exchange_rounds
};

std::vector<ReplicaClass> find_classes(const StageCosts& costs) {
  std::map<int, int> of_host;  // devices
  int all = 0;
  for (const DevicePool& pool : costs.pools()) {
    all += pool.devices;
    for (int host = 0; host < pool.hosts(); ++host)
      of_host[pool.first_host + host] += pool.per_host;
  }
  int widest = 1;
  for (const auto& [host, devices] : of_host) widest = std::max(widest, devices);
  std::vector<ReplicaClass> classes = {{static_cast<double>(widest), 0}};
  for (int times = 1; widest * times < all; times *= 2) {
    const double fewest = widest * times + 1;
    classes.push_back({times < 4 ? 2.0 * widest * times : all, 2 * (fewest - 1) / fewest});
    if (times == 4) break;
  }
  classes.back().most = all;
  return classes;
}

class StageSearch {
 public:
  explicit StageSearch(const StageQuestion& question)
      : question_(question),
        sums_(*question.costs),
        free_(sums_, {}, question.limits),
        classes_(find_classes(*question.costs)),
        ringed_(sums_, {classes_.back().rounds}, question.limits),
        evaluator_(sums_),
        fastest_(question.known.value_or(Seconds(INFINITY))) {}

  Result<StageOutcome> run() {
    for (const std::string& note : costs().notes()) outcome_.why.push_back(note);
    if (!has_shape()) {
      explain_infeasible();
      return std::move(outcome_);
    }
    const double least = rate_bound(sums_, question_.global_batch) * (1 - 1e-9);
    const Bracket start = find_bound(least);
    const bool is_possible = start.possible < kTooLong;
    if (is_possible) {
      MOTLEY_RETURN_IF_ERROR(add_mixes(start));
      MOTLEY_RETURN_IF_ERROR(price_mixes());
      improve();
      level();
    }
    prove(least);
    interleave(0);
    if (is_possible && classes_.size() > 1 && !has_few_devices() && !question_.known &&
        question_.limits.stretches.empty()) {
      const std::size_t known = priced_.size();
      MOTLEY_RETURN_IF_ERROR(add_aligned(start));
      MOTLEY_RETURN_IF_ERROR(price_mixes());
      level();
      interleave(known);
      for (std::size_t i = known; i < priced_.size(); ++i) priced_[i].is_further = true;
    }
    finish(least);
    if (!is_possible && !outcome_.best)
      outcome_.why.back() =
          "no plan of stages was found: of some layers no times are known, or devices cannot reach "
          "each other";
    return std::move(outcome_);
  }

 private:
  const StageCosts& costs() const { return *question_.costs; }

  bool has_shape() const {
    const std::vector<double> ones(costs().pools().size(), 1.0);
    for (const std::int64_t batch : costs().micro_batches())
      if (batch <= question_.global_batch && free_.cheapest({1e15, batch, batch, ones, 0}))
        return true;
    return false;
  }
  Bracket find_bound(double least);
  void explain_infeasible();
  Result<void> add_mixes(const Bracket& start);
  std::optional<ReplicaShape> find_alone(const ShapeSearch& search, double seconds,
                                         std::int64_t micro_batch);
  void add_alone();
  void add_fastest(double seconds);
  void add_apart();
  Result<void> add_mix(double seconds, const std::vector<double>& prices, MixBy by,
                       double most_after = kTooLong);
  Result<void> add_mix_of(const std::vector<ReplicaShape>& from, double seconds,
                          const std::vector<double>& prices, MixBy by, std::size_t most_offers,
                          double most_after = kTooLong);
  Result<void> add_aligned(const Bracket& start);
  bool has_degree(const ReplicaShape& shape, int degree) const;
  void add_counts(const std::vector<ReplicaShape>& shapes, const std::vector<int>& counts);
  void add_bundled(const std::vector<ReplicaShape>& shapes, const std::vector<ShapeOffer>& offers);
  double estimate(const ReplicaShape& shape, std::int64_t samples) const;
  std::int64_t expected_samples(const ReplicaShape& shape, double seconds) const;
  std::int64_t supposed_samples(const ReplicaShape& shape, double seconds) const;
  double after_passes(const ReplicaShape& shape, double slower = 1) const;
  double slower_exchange(const StagePlan& plan) const;
  double last_after(const Mix& mix) const;
  double expected_step(const Mix& mix) const;
  Result<double> simulate_alone(const ReplicaShape& shape, std::int64_t samples);
  void spread(StageReplica& replica) const;
  Result<void> learn(const ReplicaShape& shape, double seconds);
  Result<void> learn_ends(const ReplicaShape& shape);
  std::int64_t samples_of(const Mix& mix, double seconds) const;
  double seconds_of(const Mix& mix) const;
  Result<double> alone(StageReplica replica) const;
  Result<void> choose_schedule(StageReplica& replica) const;
  std::optional<Mix> with_count(const Mix& mix, std::size_t part, int count,
                                std::size_t other) const;
  void climb(RankedMixes& ranked) const;
  Result<void> refine(std::pair<double, Mix>& ranked);
  Result<void> price_mixes();
  void price_ranked(const Mix& mix);
  bool has_few_replicas(const Mix& mix) const;
  Result<void> price_mix(Mix mix, LayerMoves moves);
  void choose_micro_batches(Mix& mix) const;
  Result<void> tune(std::pair<ReplicaShape, int>& part, StageReplica* replicas,
                    std::optional<double> slower);
  void trim(const Mix& mix, const std::vector<std::size_t>& first_of, StagePlan& plan) const;
  bool fits_devices(const ReplicaShape& shape) const;
  int fills_host(const StageUnit& unit) const;
  std::vector<int> device_counts() const;
  Result<std::vector<std::int64_t>> share(const Mix& mix, const StagePlan& plan,
                                          const std::vector<std::size_t>& first_of);
  Result<void> move_layers(StageReplica& replica, double slower) const;
  bool has_few_devices() const;
  void improve();
  bool move(PricedStagePlan& plan, std::int64_t& left);
  void level();
  void prove(double least);
  bool can_interleave() const;
  void interleave(std::size_t first);
  void interleave_plan(const StagePlan& plan, Interleaving& interleaving);
  void finish(double least);
  void add_runner_ups();

  const StageQuestion& question_;
  StageSums sums_;
  ShapeSearch free_;
  std::vector<ReplicaClass> classes_;
  ShapeSearch ringed_;
  StageEvaluator evaluator_;
  ShapeColumns columns_;
  std::map<ReplicaShape, double> slower_;                    // simulated time over the model's
  std::map<ReplicaShape, std::vector<double>> after_stage_;  // from a stage's last backward on
  std::vector<Mix> mixes_;
  RankedMixes ranked_;                // by what their step is expected to take
  std::set<Mix> refined_, timed_;     // of them: their layers were moved; they were simulated
  std::vector<ReplicaShape> turned_;  // of one replica, that may be good in turns
  std::vector<PricedStagePlan> priced_;
  Seconds fastest_;  // of them, and of what is known
  bool is_proved_ = false;
  StageOutcome outcome_;
};

/// The bound over all numbers of replicas; what it returns is of the largest class, whose shapes
/// are put together.
Bracket StageSearch::find_bound(double least) {
  Bracket start;
  const Proofs proofs = question_.is_bounded ? Proofs::kToPrecision : Proofs::kFirstOnly;
  for (std::size_t i = classes_.size(); i-- > 0;) {
    if (!question_.is_bounded && i + 1 < classes_.size()) break;
    const ShapeSearch search(sums_, {classes_[i].rounds}, question_.limits);
    SampleBound bound(search, columns_, classes_[i].most);
    if (i + 1 == classes_.size()) {
      start = descend(bound, least, question_.global_batch, proofs);
      if (start.possible >= kTooLong) return start;
      outcome_.lower_bound = Seconds(start.impossible);
    } else if (bound.ask(outcome_.lower_bound.value, question_.global_batch).is_possible) {
      // Fewer replicas are quicker.
      const double impossible = descend(bound, least, question_.global_batch, proofs).impossible;
      outcome_.lower_bound = std::min(outcome_.lower_bound, Seconds(impossible));
    }
    outcome_.programs += bound.programs();
  }
  // Shorter pipelines are worth less by the model and more in the simulator.
  for (std::vector<double> prices = start.answer.prices; const std::size_t stages : kShorter) {
    ShapeLimits limits = question_.limits;
    limits.most_stages = std::min(limits.most_stages, stages);
    const ShapeSearch search(sums_, {classes_.back().rounds}, limits);
    SampleBound bound(search, columns_, classes_.back().most);
    for (std::size_t i = 0; i < prices.size(); ++i) prices[i] = kDiscount * start.answer.prices[i];
    bound.collect(start.possible, question_.global_batch, prices);
    outcome_.programs += bound.programs();
  }
  return start;
}

void StageSearch::explain_infeasible() {
  for (std::size_t u = 0; u < costs().units().size(); ++u) {
    const StageUnit& unit = costs().units()[u];
    const double memory = static_cast<double>(sums_.memory(u).value);
    std::int64_t largest = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < costs().layers(); ++i) {
      const std::int64_t bytes = sums_.bytes(u, i, i + 1).total(costs().micro_batches().front(), 1);
      if (bytes > largest) largest = bytes, at = i;
    }
    if (static_cast<double>(largest) > memory)
      outcome_.why.push_back(
          fmt::format("layer {} alone needs {:.1f} GB on {} at degree {}, which has {:.1f} GB", at,
                      static_cast<double>(largest) * 1e-9, kinds_text(unit, costs()), unit.degree(),
                      memory * 1e-9));
  }
  outcome_.why.push_back("no replica fits: in no cut into stages does every stage fit a device");
}

std::int64_t StageSearch::samples_of(const Mix& mix, double seconds) const {
  const double last = last_after(mix);
  std::int64_t samples = 0;
  for (const auto& [shape, count] : mix.parts)
    samples += count * expected_samples(shape, seconds - (last - after_passes(shape)));
  return samples;
}

/// What follows the passes begins when all replicas have ended them.
double StageSearch::last_after(const Mix& mix) const {
  double last = 0;
  for (const auto& [shape, count] : mix.parts) last = std::max(last, after_passes(shape));
  return last;
}

double StageSearch::seconds_of(const Mix& mix) const {
  return least_time(outcome_.lower_bound.value, question_.global_batch,
                    [&](double seconds) { return samples_of(mix, seconds); });
}

/// What a step of a replica takes when stages wait for each other as in 1F1B: all of them once, and
/// the slowest of them for the other micro-batches.
double StageSearch::estimate(const ReplicaShape& shape, std::int64_t samples) const {
  double once = 0, slowest = 0;
  for (std::size_t s = 0; s < shape.stages.size(); ++s) {
    const auto& [first, end, unit] = shape.stages[s];
    const double work = sums_.work(unit, shape.micro_batch).pass(first, end);
    slowest = std::max(slowest, work);
    once += work;
    if (s + 1 < shape.stages.size())
      once += ringed_.messages(unit, shape.stages[s + 1].unit, end, shape.micro_batch);
  }
  const double others = static_cast<double>(samples) / static_cast<double>(shape.micro_batch) - 1;
  return std::max(ringed_.seconds(shape, samples),
                  once + std::max(0.0, others) * slowest + after_passes(shape));
}

/// Exchange and update of the first stage, whose last pass ends the others.
double StageSearch::after_passes(const ReplicaShape& shape, double slower) const {
  const auto& [first, end, unit] = shape.stages.front();
  return sums_.work(unit, shape.micro_batch).update[end] +
         slower * ringed_.exchange(unit, first, end);
}

/// What first stages exchange in this plan over what the model thinks, as where all are in a host.
double StageSearch::slower_exchange(const StagePlan& plan) const {
  double model = 0;
  for (const StageReplica& replica : plan.replicas) {
    const PlannedStage& stage = replica.stages.front();
    model = std::max(model, ringed_.exchange(stage.unit, stage.first, stage.end));
  }
  const auto takes = evaluator_.first_exchange(plan);
  return takes && model > 0 ? takes->value / model : 1;
}

/// What a mix's step takes if all replicas end their passes at once, by what the simulator says of
/// them alone and of what follows.
double StageSearch::expected_step(const Mix& mix) const {
  const double passes = seconds_of(mix) - last_after(mix);
  if (!(passes < kTooLong)) return kTooLong;
  std::vector<std::size_t> first_of;
  StagePlan plan = plan_of(mix.parts, first_of);
  std::vector<std::vector<Seconds>> last;
  for (const auto& [shape, count] : mix.parts) {
    std::vector<Seconds> ends(shape.stages.size(), Seconds(passes));
    if (const auto known = after_stage_.find(shape); known != after_stage_.end())
      for (std::size_t s = 0; s < ends.size(); ++s)
        ends[s].value = std::max(0.0, passes - known->second[s]);
    last.insert(last.end(), static_cast<std::size_t>(count), ends);
  }
  if (!place_stages(plan, costs(), StagePlacing::kByStage)) return kTooLong;
  const auto end = evaluator_.end_after(plan, last);
  return end ? end->value : kTooLong;
}

/// Samples within a time, by the model and what the simulator said of the shape.
std::int64_t StageSearch::expected_samples(const ReplicaShape& shape, double seconds) const {
  const auto known = slower_.find(shape);
  const double slower = known == slower_.end() ? 1 : known->second;
  return ringed_.most_samples(shape, seconds / slower, question_.global_batch);
}

/// The same, of shapes that were not simulated by what stages wait for each other.
std::int64_t StageSearch::supposed_samples(const ReplicaShape& shape, double seconds) const {
  const std::int64_t does = expected_samples(shape, seconds);
  if (does == 0 || slower_.contains(shape)) return does;
  const double slower = estimate(shape, does) / ringed_.seconds(shape, does);
  return ringed_.most_samples(shape, seconds / slower, question_.global_batch);
}

void StageSearch::spread(StageReplica& replica) const {
  for (std::size_t s = 0; s < replica.stages.size(); ++s) {
    PlannedStage& stage = replica.stages[s];
    stage.host = static_cast<int>(s) % costs().pools()[costs().units()[stage.unit].pool()].hosts();
  }
}

/// The best schedule's time of a replica alone, each stage in another host where there are several.
Result<double> StageSearch::simulate_alone(const ReplicaShape& shape, std::int64_t samples) {
  StageReplica replica = replica_of(shape, samples);
  spread(replica);
  double best = kTooLong;
  for (const StageSchedule schedule :
       {StageSchedule::kH1F1B, StageSchedule::kWide, StageSchedule::kDeepList}) {
    replica.schedule = schedule;
    MOTLEY_ASSIGN(const double time, alone(replica));
    best = std::min(best, time);
  }
  return best + after_passes(shape);
}

/// How much slower the simulator is than the model for what the shape does in a time.
Result<void> StageSearch::learn(const ReplicaShape& shape, double seconds) {
  if (slower_.contains(shape)) return {};
  const std::int64_t does = ringed_.most_samples(shape, seconds, question_.global_batch);
  if (does == 0) return {};
  MOTLEY_ASSIGN(const double time, simulate_alone(shape, does));
  slower_[shape] = time / ringed_.seconds(shape, does);
  return learn_ends(shape);
}

Result<void> StageSearch::learn_ends(const ReplicaShape& shape) {
  const auto micro_batches = static_cast<std::int64_t>(2 * shape.stages.size());
  StageReplica replica = replica_of(shape, micro_batches * shape.micro_batch);
  replica.schedule = StageSchedule::kH1F1B;
  spread(replica);
  MOTLEY_ASSIGN(const StagePrice price, evaluator_.run_alone(replica));
  for (const StageSpan& span : price.spans.front())
    after_stage_[shape].push_back((price.step - span.last).value);
  return {};
}

/// Seconds of a replica alone; of many micro-batches the later ones take what some before took.
Result<double> StageSearch::alone(StageReplica replica) const {
  const auto stages = static_cast<std::int64_t>(replica.stages.size());
  const std::int64_t some = 2 * stages + 4, more = 3 * stages + 8;
  const double samples = static_cast<double>(replica.samples);
  const bool is_short = replica.samples <= (more + some) * replica.micro_batch;
  if (!is_short) replica.samples = more * replica.micro_batch;
  MOTLEY_ASSIGN(const Seconds longer, evaluator_.pipeline(replica));
  if (is_short) return longer.value;
  replica.samples = some * replica.micro_batch;
  MOTLEY_ASSIGN(const Seconds shorter, evaluator_.pipeline(replica));
  // While a pipeline fills it goes faster than its slowest stage.
  double each = (longer.value - shorter.value) / static_cast<double>(more - some);
  for (const PlannedStage& stage : replica.stages)
    each = std::max(each, sums_.work(stage.unit, replica.micro_batch).pass(stage.first, stage.end));
  return longer.value +
         each * (samples / static_cast<double>(replica.micro_batch) - static_cast<double>(more));
}

/// Are all its stages on units of so many devices?
bool StageSearch::has_degree(const ReplicaShape& shape, int degree) const {
  return std::all_of(shape.stages.begin(), shape.stages.end(), [&](const ShapeStage& stage) {
    return costs().units()[stage.unit].degree() == degree;
  });
}

/// The best mix at a time, from the shapes that are worth most there.
Result<void> StageSearch::add_mix(double seconds, const std::vector<double>& prices, MixBy by,
                                  double most_after) {
  return add_mix_of(columns_.shapes(), seconds, prices, by, kMostOffers, most_after);
}

/// The same of these shapes, of which the best `most_offers` are put together.
Result<void> StageSearch::add_mix_of(const std::vector<ReplicaShape>& from, double seconds,
                                     const std::vector<double>& prices, MixBy by,
                                     std::size_t most_offers, double most_after) {
  const auto until = [&](const ReplicaShape& shape) {
    return most_after < kTooLong ? seconds - (most_after - after_passes(shape)) : seconds;
  };
  std::vector<std::pair<double, std::size_t>> worth;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const ReplicaShape& shape = from[i];
    if (after_passes(shape) > most_after) continue;
    const std::int64_t does = by == kMixModel ? expected_samples(shape, until(shape))
                                              : supposed_samples(shape, until(shape));
    double price = 1e-9;
    const std::vector<int> devices = ringed_.devices(shape);
    for (std::size_t p = 0; p < devices.size(); ++p) price += prices[p] * devices[p];
    if (does > 0) worth.emplace_back(-static_cast<double>(does) / price, i);
  }
  std::sort(worth.begin(), worth.end());
  if (worth.size() > most_offers) worth.resize(most_offers);
  std::vector<ReplicaShape> shapes;
  std::vector<ShapeOffer> offers;
  for (const auto& [negative, i] : worth) {
    const ReplicaShape& shape = from[i];
    if (by == kMixSimulated) MOTLEY_RETURN_IF_ERROR(learn(shape, seconds));
    shapes.push_back(shape);
    offers.push_back({expected_samples(shape, until(shape)), ringed_.devices(shape)});
  }
  add_counts(shapes, choose_replicas(offers, device_counts()));
  if (by == kMixSimulated && classes_.size() > 1) add_bundled(shapes, offers);
  return {};
}

/// Mixes of replicas that are all cut at the same layers, as the shapes that are worth most are, or
/// evenly: what each has of a layer is summed in one go, where replicas that are cut differently
/// have many sums, one after the other.
Result<void> StageSearch::add_aligned(const Bracket& start) {
  std::set<std::vector<std::size_t>> cuts;
  std::vector<std::vector<ReplicaShape>> aligned;
  const auto add = [&](std::vector<std::size_t> ends) {
    if (!cuts.insert(ends).second) return;
    std::vector<ReplicaShape>& shapes = aligned.emplace_back();
    for (const ReplicaShape& shape : columns_.shapes())
      if (ends_of(shape) == ends) shapes.push_back(shape);
    for (const std::int64_t micro : costs().micro_batches())
      for (std::size_t unit = 0; unit < costs().units().size(); ++unit) {
        ReplicaShape shape{{}, micro};
        std::size_t first = 0;
        for (const std::size_t end : ends) {
          shape.stages.push_back({first, end, unit});
          first = end;
        }
        if (ringed_.is_valid(shape) && fits_devices(shape)) shapes.push_back(std::move(shape));
      }
  };
  for (std::size_t stages = 1; stages <= std::min(costs().layers(), kMostEven); ++stages) {
    const MergedLayers even = MergedLayers::balanced(costs(), stages);
    std::vector<std::size_t> ends;
    for (std::size_t s = 1; s <= stages; ++s) ends.push_back(even.cut(s));
    add(std::move(ends));
  }
  for (const auto& [seconds, mix] : ranked_)
    for (const auto& [shape, count] : mix.parts)
      if (cuts.size() < kMostEven + kMostAligned) add(ends_of(shape));
  for (const std::vector<ReplicaShape>& shapes : aligned)
    for (const double factor : kAlignedTimes)
      MOTLEY_RETURN_IF_ERROR(add_mix_of(shapes, start.possible * factor, start.answer.prices,
                                        kMixSimulated, kMostAlignedOffers));
  return {};
}

void StageSearch::add_counts(const std::vector<ReplicaShape>& shapes,
                             const std::vector<int>& counts) {
  std::map<ReplicaShape, int> count_of;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) count_of[shapes[i]] += counts[i];
  const Mix mix{{count_of.begin(), count_of.end()}};
  const auto is_same = [&](const Mix& known) { return known.parts == mix.parts; };
  if (!mix.parts.empty() && std::none_of(mixes_.begin(), mixes_.end(), is_same))
    mixes_.push_back(mix);
}

/// The same of as many replicas at once as their first stages fill a host, two shapes at most: what
/// is summed last then goes through hosts in which all devices take part.
void StageSearch::add_bundled(const std::vector<ReplicaShape>& shapes,
                              const std::vector<ShapeOffer>& offers) {
  struct Bundle {
    std::array<std::size_t, 2> shapes;
    std::array<int, 2> counts;
  };
  std::vector<Bundle> bundles;
  for (std::size_t a = 0; a < shapes.size(); ++a) {
    const std::size_t unit = shapes[a].stages.front().unit;
    const int fill = fills_host(costs().units()[unit]);
    bundles.push_back({{a, a}, {fill, 0}});
    if (fill % 2 != 0) continue;
    for (std::size_t b = a + 1; b < std::min(shapes.size(), kMostBundled); ++b)
      if (shapes[b].stages.front().unit == unit) bundles.push_back({{a, b}, {fill / 2, fill / 2}});
  }
  std::vector<ShapeOffer> bundled;
  for (const auto& [of, counts] : bundles) {
    ShapeOffer& sum = bundled.emplace_back(ShapeOffer{0, std::vector<int>(device_counts().size())});
    for (std::size_t half = 0; half < of.size(); ++half) {
      sum.samples += counts[half] * offers[of[half]].samples;
      for (std::size_t p = 0; p < sum.devices.size(); ++p)
        sum.devices[p] += counts[half] * offers[of[half]].devices[p];
    }
  }
  const std::vector<int> chosen = choose_replicas(bundled, device_counts());
  std::vector<int> counts(shapes.size());
  for (std::size_t i = 0; i < chosen.size(); ++i)
    for (std::size_t half = 0; half < 2; ++half)
      counts[bundles[i].shapes[half]] += chosen[i] * bundles[i].counts[half];
  add_counts(shapes, counts);
}

std::vector<int> StageSearch::device_counts() const {
  std::vector<int> devices;
  for (const DevicePool& pool : costs().pools()) devices.push_back(pool.devices);
  return devices;
}

/// As many of the unit as a host has devices for.
int StageSearch::fills_host(const StageUnit& unit) const {
  int fill = costs().pools()[unit.pool()].per_host;
  for (const UnitPart& part : unit.parts)
    fill = std::min(fill, costs().pools()[part.pool].per_host / part.devices);
  return std::max(1, fill);
}

bool StageSearch::fits_devices(const ReplicaShape& shape) const {
  const std::vector<int> devices = free_.devices(shape);
  for (std::size_t pool = 0; pool < devices.size(); ++pool)
    if (devices[pool] > costs().pools()[pool].devices) return false;
  return true;
}

Result<void> StageSearch::add_mixes(const Bracket& start) {
  // By the model alone, then by what the simulator says of the best shapes.
  for (const double factor : {1.0, 1.01, 1.03, 1.06}) {
    MOTLEY_RETURN_IF_ERROR(add_mix(start.possible * factor, start.answer.prices, kMixModel));
  }
  for (const double factor : {1.0, 1.03, 1.06, 1.1, 1.15, 1.2, 1.3}) {
    MOTLEY_RETURN_IF_ERROR(add_mix(start.possible * factor, start.answer.prices, kMixSimulated));
  }
  if (classes_.size() > 1) {
    std::set<double> afters;
    for (const Mix& mix : mixes_)
      for (const auto& [shape, count] : mix.parts) afters.insert(after_passes(shape));
    for (const double after : afters)
      for (const double factor : {1.0, 1.03, 1.06, 1.1, 1.15})
        MOTLEY_RETURN_IF_ERROR(
            add_mix(start.possible * factor, start.answer.prices, kMixSimulated, after));
  }
  // Sums go at the rate of the narrowest unit that holds a layer.
  std::set<int> degrees;
  for (const StageUnit& unit : costs().units()) degrees.insert(unit.degree());
  if (degrees.size() == 1) degrees.clear();  // they are above
  for (const int degree : degrees) {
    std::vector<ReplicaShape> shapes;
    for (const ReplicaShape& shape : columns_.shapes())
      if (has_degree(shape, degree)) shapes.push_back(shape);
    for (const double factor : {1.0, 1.06, 1.15, 1.3})
      MOTLEY_RETURN_IF_ERROR(add_mix_of(shapes, start.possible * factor, start.answer.prices,
                                        kMixSimulated, kMostOffers));
  }
  add_alone();
  if (has_few_devices()) add_apart();
  return {};
}

/// Pools apart: in each as many replicas as it has devices for, all of the shape that does most
/// there. No price of devices shows that, where fractions of other shapes are worth more.
void StageSearch::add_apart() {
  std::map<std::size_t, std::vector<std::pair<const ReplicaShape*, int>>> choices;  // by pool
  for (const ReplicaShape& shape : columns_.shapes()) {
    const std::vector<int> devices = free_.devices(shape);
    const std::size_t pool = costs().units()[shape.stages.front().unit].pool();
    const int fits = costs().pools()[pool].devices / std::max(1, devices[pool]);
    if (fits > 0 && devices[pool] == std::accumulate(devices.begin(), devices.end(), 0))
      choices[pool].emplace_back(&shape, fits);
  }
  Mix mix;
  const auto done_in = [&](double seconds) {
    std::int64_t all = 0;
    mix.parts.clear();
    for (const auto& [pool, shapes] : choices) {
      std::int64_t most = 0;
      std::pair<const ReplicaShape*, int> best;
      for (const auto& choice : shapes) {
        const std::int64_t does = choice.second * supposed_samples(*choice.first, seconds);
        if (does <= most) continue;
        most = does;
        best = choice;
      }
      if (most > 0) mix.parts.emplace_back(*best.first, best.second);
      all += most;
    }
    return all;
  };
  const double seconds = least_time(outcome_.lower_bound.value, question_.global_batch, done_in);
  if (!(seconds < kTooLong) || choices.empty()) return;
  done_in(seconds);
  std::sort(mix.parts.begin(), mix.parts.end());
  mixes_.push_back(std::move(mix));
}

/// A replica that does all samples in a time, of devices that there are: devices of which the
/// cheapest has too many get dearer until it has not. May miss some.
std::optional<ReplicaShape> StageSearch::find_alone(const ShapeSearch& search, double seconds,
                                                    std::int64_t micro_batch) {
  constexpr int kRounds = 8;
  constexpr double kDearer = 1.5;
  std::vector<double> prices;
  for (const DevicePool& pool : costs().pools()) prices.push_back(1.0 / pool.devices);
  for (int round = 0; round < kRounds; ++round) {
    ++outcome_.programs;
    const auto found = search.cheapest({seconds, question_.global_batch, micro_batch, prices});
    if (!found || fits_devices(found->shape))
      return found ? std::optional(found->shape) : std::nullopt;
    const std::vector<int> devices = free_.devices(found->shape);
    for (std::size_t pool = 0; pool < prices.size(); ++pool)
      if (devices[pool] > costs().pools()[pool].devices) prices[pool] *= kDearer;
  }
  return std::nullopt;
}

/// The same, exactly: of each number of stages and micro-batch the fastest; and that where
/// messages weigh more than the model thinks, to which they are as nothing once the pipeline is
/// full.
void StageSearch::add_fastest(double seconds) {
  const FastestShape search(free_);
  std::set<ReplicaShape> added;
  for (const std::int64_t batch : costs().micro_batches()) {
    if (batch > question_.global_batch) break;
    ++outcome_.programs;
    for (const double weight : {1.0, kHeavyMessages})
      for (const auto& [stages, shape] : search.find(
               {question_.global_batch, batch, seconds, question_.limits.most_stages, weight}))
        if (added.insert(shape).second) mixes_.push_back({{{shape, 1}}});
    if (!can_interleave()) continue;
    ++outcome_.programs;
    for (const auto& [stages, shape] :
         search.find({question_.global_batch, batch, seconds, question_.limits.most_stages, 1.0,
                      kTurnedFill}))
      if (stages > 1 && added.insert(shape).second) turned_.push_back(shape);
  }
}

/// One replica does all: it exchanges nothing, so it also serves where devices cannot reach each
/// other, and fractions of replicas, by which shapes are found, do not show it. For some numbers of
/// stages, as the model thinks too well of many, the fastest shape of devices that there are:
/// those of least price at which as many fit, in ever less time.
void StageSearch::add_alone() {
  constexpr double kSteps[] = {1.2, 1.02};
  const std::int64_t all = question_.global_batch;
  std::set<ReplicaShape> added;
  std::optional<ReplicaShape> best;
  double least = INFINITY;
  const auto offer = [&](const ReplicaShape& shape, std::size_t most) {
    if (shape.stages.size() > most || !fits_devices(shape)) return false;
    const double seconds = free_.seconds(shape, all);
    if (seconds < least) {
      least = seconds;
      best = shape;
    }
    return true;
  };
  for (const ReplicaShape& shape : columns_.shapes()) offer(shape, costs().layers());
  const double known = least;
  if (FastestShape::can_search(costs().pools())) return add_fastest(kSlowest * known);
  std::size_t devices = 0, widest = 1;
  for (const DevicePool& pool : costs().pools()) devices += static_cast<std::size_t>(pool.devices);
  for (const StageUnit& unit : costs().units())
    widest = std::max(widest, static_cast<std::size_t>(unit.degree()));
  for (const std::size_t most : kShorter) {
    if (most * widest * kLeastUse < devices) continue;
    ShapeLimits limits = question_.limits;
    limits.most_stages = std::min(limits.most_stages, most);
    const ShapeSearch search(sums_, {}, limits);
    best.reset();
    least = INFINITY;
    for (const ReplicaShape& shape : columns_.shapes()) offer(shape, most);
    for (const std::int64_t batch : costs().micro_batches())
      for (const double step : kSteps)
        while (true) {
          const double tried = std::min(least, kSlowest * known) / step;
          const auto shape = find_alone(search, tried, batch);
          if (!shape || !offer(*shape, most)) break;
        }
    if (best && added.insert(*best).second) mixes_.push_back({{{*best, 1}}});
  }
}

/// The mix with `count` of a part and, of another part, as many fewer as that takes devices or as
/// many more as it leaves; absent if that cannot be.
std::optional<Mix> StageSearch::with_count(const Mix& mix, std::size_t part, int count,
                                           std::size_t other) const {
  Mix changed = mix;
  changed.parts[part].second = count;
  std::vector<int> left = device_counts();
  for (std::size_t i = 0; i < changed.parts.size(); ++i) {
    const std::vector<int> devices = ringed_.devices(changed.parts[i].first);
    for (std::size_t p = 0; p < left.size(); ++p) left[p] -= changed.parts[i].second * devices[p];
  }
  const std::vector<int> each = ringed_.devices(changed.parts[other].first);
  int more = changed.parts[other].second + std::accumulate(left.begin(), left.end(), 0);
  for (std::size_t p = 0; p < left.size(); ++p)
    if (each[p] > 0)
      more = std::min(more, left[p] / each[p] - (left[p] % each[p] < 0 ? 1 : 0));
    else if (left[p] < 0)
      return std::nullopt;
  changed.parts[other].second += more;
  if (changed.parts[other].second < 0) return std::nullopt;
  std::erase_if(changed.parts, [](const auto& each_part) { return each_part.second == 0; });
  std::sort(changed.parts.begin(), changed.parts.end());
  return changed.parts.empty() ? std::nullopt : std::optional(changed);
}

/// From the fastest mixes by other counts of their parts, as long as that is quicker: by one, by
/// as many as fill a host with their first stages, or none.
void StageSearch::climb(RankedMixes& ranked) const {
  std::int64_t left = kMostClimbed;
  std::set<Mix> seen;
  for (const auto& [seconds, mix] : ranked) seen.insert(mix);
  RankedMixes found;
  std::set<ReplicaShape> pool;
  for (std::size_t k = 0; k < std::min(ranked.size(), 2 * kClimbs); ++k)
    for (const auto& [shape, count] : ranked[k].second.parts) pool.insert(shape);
  for (std::size_t k = 0; k < std::min(ranked.size(), kClimbs); ++k) {
    std::pair<double, Mix> now = ranked[k];
    for (bool has_moved = true; has_moved && left > 0;) {
      has_moved = false;
      Mix from = now.second;
      for (const ReplicaShape& shape : pool)
        if (std::none_of(from.parts.begin(), from.parts.end(),
                         [&](const auto& part) { return part.first == shape; }))
          from.parts.emplace_back(shape, 0);
      for (std::size_t part = 0; part < from.parts.size(); ++part) {
        const int fill = fills_host(costs().units()[from.parts[part].first.stages.front().unit]);
        const int count = from.parts[part].second;
        for (const int tried : std::set<int>{0, count - fill, count - 1, count + 1, count + fill})
          for (std::size_t other = 0; other < from.parts.size() && tried >= 0; ++other) {
            if (other == part || left <= 0) continue;
            auto changed = with_count(from, part, tried, other);
            if (!changed || !seen.insert(*changed).second) continue;
            --left;
            const double seconds = expected_step(*changed);
            if (seconds >= now.first * (1 - kSmallestClimb)) continue;
            now = {seconds, *std::move(changed)};
            has_moved = true;
          }
      }
    }
    if (now.first < ranked[k].first) found.push_back(std::move(now));
  }
  ranked.insert(ranked.end(), found.begin(), found.end());
  std::sort(ranked.begin(), ranked.end());
}

/// Moves layers between neighbouring stages of each part as long as the whole step is expected to
/// get quicker by it.
Result<void> StageSearch::refine(std::pair<double, Mix>& ranked) {
  auto& [best, mix] = ranked;
  if (question_.limits.one_layer_stages) return {};
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (std::size_t part = 0; part < mix.parts.size(); ++part)
      for (std::size_t s = 0; s + 1 < mix.parts[part].first.stages.size(); ++s)
        for (const int by : {-1, 1}) {
          Mix tried = mix;
          ReplicaShape& shape = tried.parts[part].first;
          if (!move_cut(shape.stages, s, by)) continue;
          if (!free_.is_valid(shape)) continue;
          MOTLEY_RETURN_IF_ERROR(learn(shape, best));
          const double seconds = expected_step(tried);
          if (seconds >= best * (1 - kSmallestMove)) continue;
          best = seconds;
          mix = std::move(tried);
          has_moved = true;
        }
  }
  return {};
}

/// Those first whose whole step is expected to be the least, with other counts and cuts.
Result<void> StageSearch::price_mixes() {
  for (Mix& mix : mixes_) {
    if (mix.parts.empty()) continue;  // it is ranked
    const double seconds = seconds_of(mix);
    for (const auto& [shape, count] : mix.parts) MOTLEY_RETURN_IF_ERROR(learn(shape, seconds));
    const double expected = expected_step(mix);
    if (expected < kTooLong) ranked_.emplace_back(expected, std::move(mix));
  }
  std::sort(ranked_.begin(), ranked_.end());
  std::set<int> depths;  // that were priced
  if (has_few_devices()) {
    for (std::size_t i = 0; i < ranked_.size(); ++i)
      if (depths.insert(depth_class(ranked_[i].second)).second || i < 2 * kMostPriced)
        price_ranked(ranked_[i].second);
    return {};
  }
  climb(ranked_);
  for (std::size_t i = 0; i < std::min(kRefined, ranked_.size()); ++i) {
    if (is_one_replica(ranked_[i].second) || refined_.contains(ranked_[i].second)) continue;
    MOTLEY_RETURN_IF_ERROR(refine(ranked_[i]));
    refined_.insert(ranked_[i].second);
  }
  std::sort(ranked_.begin(), ranked_.end());
  std::size_t few = 0;
  for (std::size_t i = 0; i < ranked_.size(); ++i) {
    const auto& [expected, mix] = ranked_[i];
    // What is expected of few replicas does not know which of their stages share a host.
    const bool is_few = has_few_replicas(mix);
    const bool is_worth =
        (i < kMostPriced && expected <= kTooSlow * fastest_.value) ||
        (is_few && few < kMostPriced && expected <= kTooSlowFew * fastest_.value) ||
        (!depths.contains(depth_class(mix)) && expected <= kTooSlowDepth * fastest_.value);
    if (!is_worth && std::isfinite(fastest_.value)) continue;
    if (timed_.insert(mix).second) price_ranked(mix);
    depths.insert(depth_class(mix));
    few += is_few ? 1 : 0;
  }
  return {};
}

/// Not more than the devices of a host.
bool StageSearch::has_few_replicas(const Mix& mix) const {
  int replicas = 0;
  for (const auto& [shape, count] : mix.parts) replicas += count;
  return replicas <= classes_.front().most;
}

/// Says what kept it from being priced.
void StageSearch::price_ranked(const Mix& mix) {
  auto priced = price_mix(mix, LayerMoves::kTried);
  if (priced && refined_.contains(mix)) priced = price_mix(mix, LayerMoves::kLeft);
  if (Mix other = mix; priced && has_few_devices()) {
    choose_micro_batches(other);
    if (other.parts != mix.parts) priced = price_mix(std::move(other), LayerMoves::kTried);
  }
  if (priced) return;
  // A link that is not there.
  const std::string& message = priced.error().message;
  if (std::find(outcome_.why.begin(), outcome_.why.end(), message) == outcome_.why.end())
    outcome_.why.push_back(message);
}

/// As StageEvaluator::choose_schedule, but by short runs.
Result<void> StageSearch::choose_schedule(StageReplica& replica) const {
  std::optional<std::pair<double, StageSchedule>> best;
  for (const StageSchedule schedule : kTriedSchedules) {
    replica.schedule = schedule;
    MOTLEY_ASSIGN(const double time, alone(replica));
    if (!best || time < best->first) best = {time, schedule};
  }
  replica.schedule = best->second;
  return {};
}

/// Layers between neighbours, as long as the replica alone gets quicker by it.
Result<void> StageSearch::move_layers(StageReplica& replica, double slower) const {
  MOTLEY_ASSIGN(double best, alone(replica));
  best += after_passes(shape_of(replica), slower);
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (std::size_t s = 0; s + 1 < replica.stages.size(); ++s)
      for (const int by : {-1, 1}) {
        StageReplica tried = replica;
        if (!move_cut(tried.stages, s, by)) continue;
        const ReplicaShape shape = shape_of(tried);
        if (!free_.is_valid(shape)) continue;
        MOTLEY_ASSIGN(double time, alone(tried));
        time += after_passes(shape, slower);
        if (time >= best * (1 - 1e-4)) continue;
        best = time;
        replica = tried;
        has_moved = true;
      }
  }
  return {};
}

/// Samples of each replica of each part, so that all end together by what the simulator says of one
/// of them. `first_of`: a part's first replica in the plan.
Result<std::vector<std::int64_t>> StageSearch::share(const Mix& mix, const StagePlan& plan,
                                                     const std::vector<std::size_t>& first_of) {
  std::vector<double> slower(mix.parts.size(), 1);  // than the model says
  std::vector<std::int64_t> samples(mix.parts.size());
  double seconds = seconds_of(mix);
  for (int round = 0; round < 3; ++round) {
    const double last = last_after(mix);
    const auto does = [&](std::size_t i, double time) {
      const ReplicaShape& shape = mix.parts[i].first;
      const double until = time - (last - after_passes(shape));
      return ringed_.most_samples(shape, until / slower[i], question_.global_batch);
    };
    const auto at = [&](double time) {
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < mix.parts.size(); ++i) sum += mix.parts[i].second * does(i, time);
      return sum;
    };
    seconds = least_time(outcome_.lower_bound.value / 2, question_.global_batch, at);
    if (!(seconds < kTooLong)) break;
    for (std::size_t i = 0; i < mix.parts.size(); ++i) {
      const ReplicaShape& shape = mix.parts[i].first;
      samples[i] = does(i, seconds);
      if (samples[i] == 0) continue;
      StageReplica replica = plan.replicas[first_of[i]];
      replica.samples = samples[i];
      MOTLEY_ASSIGN(const double time, alone(replica));
      slower[i] = (time + after_passes(shape)) / ringed_.seconds(shape, samples[i]);
    }
  }
  return samples;
}

/// Better cuts and orders of a part for what it does.
Result<void> StageSearch::tune(std::pair<ReplicaShape, int>& part, StageReplica* replicas,
                               std::optional<double> slower) {
  StageReplica& first = *replicas;
  MOTLEY_RETURN_IF_ERROR(choose_schedule(first));
  if (slower) MOTLEY_RETURN_IF_ERROR(move_layers(first, *slower));
  for (int r = 1; r < part.second; ++r) {
    replicas[r].schedule = first.schedule;
    for (std::size_t s = 0; s < first.stages.size(); ++s) {
      replicas[r].stages[s].first = first.stages[s].first;
      replicas[r].stages[s].end = first.stages[s].end;
    }
  }
  for (std::size_t s = 0; s < first.stages.size(); ++s) {
    part.first.stages[s].first = first.stages[s].first;
    part.first.stages[s].end = first.stages[s].end;
  }
  return {};
}

/// Takes samples beyond the batch from the slowest replicas, what is left over first. Micro-batches
/// get smaller where first and last are full only then.
void StageSearch::trim(const Mix& mix, const std::vector<std::size_t>& first_of,
                       StagePlan& plan) const {
  std::int64_t excess = -question_.global_batch;
  std::vector<std::pair<double, std::size_t>> slowest;
  for (std::size_t i = 0; i < mix.parts.size(); ++i)
    for (int r = 0; r < mix.parts[i].second; ++r) {
      const std::size_t index = first_of[i] + static_cast<std::size_t>(r);
      const std::int64_t samples = plan.replicas[index].samples;
      excess += samples;
      slowest.emplace_back(ringed_.seconds(mix.parts[i].first, std::max<std::int64_t>(1, samples)),
                           index);
    }
  std::sort(slowest.rbegin(), slowest.rend());
  for (std::size_t k = 0; excess > 0; k = (k + 1) % slowest.size()) {
    StageReplica& replica = plan.replicas[slowest[k].second];
    const std::int64_t rest = replica.samples % replica.micro_batch;
    const std::int64_t less =
        std::min({excess, rest > 0 ? rest : replica.micro_batch, replica.samples});
    replica.samples -= less;
    excess -= less;
  }
  std::erase_if(plan.replicas, [](const StageReplica& replica) { return replica.samples == 0; });
  for (StageReplica& replica : plan.replicas)
    for (auto batch = costs().micro_batches().rbegin();
         !has_full_ends(replica) && batch != costs().micro_batches().rend(); ++batch)
      if (*batch < replica.micro_batch) replica.micro_batch = *batch;
}

/// Each part's micro-batch that is fastest for what it does: columns are of those that were worth
/// their price, in other times.
void StageSearch::choose_micro_batches(Mix& mix) const {
  const double seconds = seconds_of(mix);
  for (auto& [shape, count] : mix.parts) {
    const std::int64_t samples = expected_samples(shape, seconds);
    if (samples == 0) continue;
    ReplicaShape tried = shape;
    double least = estimate(shape, samples);
    for (const std::int64_t batch : costs().micro_batches()) {
      tried.micro_batch = batch;
      if (!has_full_ends(replica_of(tried, samples)) || !free_.is_valid(tried)) continue;
      const double time = estimate(tried, samples);
      if (time >= least * (1 - kSmallestGain)) continue;
      least = time;
      shape.micro_batch = batch;
    }
  }
}

Result<void> StageSearch::price_mix(Mix mix, LayerMoves moves) {
  std::vector<std::size_t> first_of;
  StagePlan plan = plan_of(mix.parts, first_of);
  if (!place_stages(plan, costs(), StagePlacing::kByStage)) return {};
  MOTLEY_ASSIGN(std::vector<std::int64_t> samples, share(mix, plan, first_of));
  std::optional<double> slower;
  if (moves == LayerMoves::kTried && !question_.limits.one_layer_stages)
    slower = slower_exchange(plan);
  for (std::size_t i = 0; i < mix.parts.size(); ++i) {
    StageReplica& first = plan.replicas[first_of[i]];
    first.samples = std::max<std::int64_t>(1, samples[i]);
    MOTLEY_RETURN_IF_ERROR(tune(mix.parts[i], &first, slower));
  }
  MOTLEY_ASSIGN(samples, share(mix, plan, first_of));
  for (std::size_t i = 0; i < mix.parts.size(); ++i)
    for (int r = 0; r < mix.parts[i].second; ++r)
      plan.replicas[first_of[i] + static_cast<std::size_t>(r)].samples = samples[i];
  trim(mix, first_of, plan);
  std::optional<PricedStagePlan> best;
  for (const StagePlacing placing : {StagePlacing::kByStage, StagePlacing::kByReplica}) {
    // The second way has not made up for as much yet.
    if (best && best->price.step > kTooSlow * fastest_) continue;
    if (!place_stages(plan, costs(), placing)) continue;
    ++outcome_.simulated;
    MOTLEY_ASSIGN(StagePrice price, evaluator_.price(plan));
    if (price.fits && (!best || price.step < best->price.step)) best = {plan, std::move(price)};
  }
  if (!best) return {};
  fastest_ = std::min(fastest_, best->price.step);
  priced_.push_back(std::move(*best));
  return {};
}

bool StageSearch::has_few_devices() const {
  int devices = 0;
  for (const DevicePool& pool : costs().pools()) devices += pool.devices;
  const ShapeLimits& limits = question_.limits;
  return devices <= kFewDevices && !limits.one_layer_stages && limits.mix == UnitMix::kAll &&
         limits.most_stages >= costs().layers();
}

/// What a simulation of the plan goes through.
/// Of few devices: from the best plans by single moves, whatever the model says, as long as one is
/// quicker by the simulator. The first that is is taken.
void StageSearch::improve() {
  if (!has_few_devices() || question_.equal_samples) return;
  std::stable_sort(priced_.begin(), priced_.end(),
                   [](const auto& a, const auto& b) { return a.price.step < b.price.step; });
  std::int64_t left = kMovedPasses;
  std::vector<PricedStagePlan> improved;
  for (std::size_t i = 0; i < std::min(priced_.size(), kImproved); ++i) {
    PricedStagePlan now = priced_[i];
    while (left > 0 && move(now, left)) continue;
    const auto is_same = [&](const PricedStagePlan& known) { return known.plan == now.plan; };
    if (std::none_of(priced_.begin(), priced_.end(), is_same) &&
        std::none_of(improved.begin(), improved.end(), is_same))
      improved.push_back(std::move(now));
  }
  for (PricedStagePlan& each : improved) priced_.push_back(std::move(each));
}

/// Gives samples of the replica that ends its passes last to the one that ends them first, one or a
/// micro-batch, as long as the best plan gets quicker by it.
void StageSearch::level() {
  if (priced_.empty() || question_.equal_samples) return;
  const auto best = std::min_element(priced_.begin(), priced_.end(),
                                     [](auto& a, auto& b) { return a.price.step < b.price.step; });
  PricedStagePlan now = *best;
  std::int64_t left = kLeveledPasses;
  for (bool has_moved = now.plan.replicas.size() > 1; has_moved;) {
    has_moved = false;
    std::size_t last = 0, first = 0;
    for (std::size_t r = 0; r < now.plan.replicas.size(); ++r) {
      const auto ends = [&](std::size_t of) { return now.price.spans[of].front().last; };
      if (ends(r) > ends(last)) last = r;
      if (ends(r) < ends(first)) first = r;
    }
    for (const std::int64_t amount :
         std::set<std::int64_t>{1, now.plan.replicas[last].micro_batch}) {
      StagePlan tried = now.plan;
      tried.replicas[last].samples -= amount;
      tried.replicas[first].samples += amount;
      if (!has_full_ends(tried.replicas[last]) || !has_full_ends(tried.replicas[first])) continue;
      left -= count_passes(tried);
      if (left < 0) break;
      ++outcome_.simulated;
      auto price = evaluator_.price(tried);
      if (!price || !price->fits || price->step >= now.price.step) continue;
      now = {std::move(tried), *std::move(price)};
      has_moved = true;
      break;
    }
  }
  if (now.price.step < best->price.step) priced_.push_back(std::move(now));
}

/// To the first plan one move away that is quicker; false: there is none.
bool StageSearch::move(PricedStagePlan& plan, std::int64_t& left) {
  for (MovedPlan& moved : find_moves(plan.plan, costs())) {
    if (left <= 0) return false;
    if (!place_stages(moved.plan, costs(), StagePlacing::kByStage)) continue;
    left -= (1 + static_cast<std::int64_t>(std::size(kTriedSchedules))) * count_passes(moved.plan);
    bool is_known = true;
    for (const std::size_t r : moved.changed)
      is_known = is_known && evaluator_.choose_schedule(moved.plan.replicas[r]).has_value();
    if (!is_known) continue;
    ++outcome_.simulated;
    auto price = evaluator_.price(moved.plan);
    if (!price || !price->fits || price->step >= plan.price.step * (1 - kSmallestGain)) continue;
    plan = {std::move(moved.plan), *std::move(price)};
    return true;
  }
  return false;
}

/// Of few devices: all that the bound leaves is tried; where no plan was found, in ever more time
/// from twice the least that there can be.
void StageSearch::prove(double least) {
  if (!has_few_devices() || question_.equal_samples) return;
  constexpr double kWider = 2;
  Seconds known = priced_.empty() ? Seconds(kWider * least) : priced_.front().price.step;
  for (const PricedStagePlan& each : priced_) known = std::min(known, each.price.step);
  for (int round = 0; round < 6; ++round, known.value *= kWider) {
    ProofOutcome proof = prove_plans(free_, evaluator_, {question_.global_batch, known});
    outcome_.simulated += proof.simulated;
    outcome_.lower_bound = std::max(outcome_.lower_bound, proof.lower_bound);
    is_proved_ = proof.is_complete;
    if (proof.best) priced_.push_back(*std::move(proof.best));
    if (!priced_.empty() || !proof.is_complete) return;
  }
}

/// Replicas by units, micro-batch and samples.
std::vector<std::vector<std::int64_t>> key_of(const StagePlan& plan) {
  std::vector<std::vector<std::int64_t>> key;
  for (const StageReplica& replica : plan.replicas) {
    std::vector<std::int64_t>& of = key.emplace_back();
    for (const PlannedStage& stage : replica.stages)
      of.push_back(static_cast<std::int64_t>(stage.unit));
    of.push_back(replica.micro_batch);
    of.push_back(replica.samples);
  }
  return key;
}

/// Two units in turns have three stages at least.
bool StageSearch::can_interleave() const {
  const std::vector<int> devices = device_counts();
  return question_.interleaves && !costs().messages_block() && costs().layers() > 2 &&
         std::accumulate(devices.begin(), devices.end(), 0) > 1;
}

/// Of the plans that hope most for it, the devices' layers in turns.
void StageSearch::interleave(std::size_t first) {
  if (!can_interleave() || first == priced_.size()) return;
  Interleaving interleaving(evaluator_, sums_, kTurnedPasses);
  std::vector<std::pair<Seconds, StagePlan>> hopes;
  const auto offer = [&](Seconds hope, const StagePlan& plan) {
    StagePlan fastest = plan;
    for (StageReplica& replica : fastest.replicas)
      replica = interleaving.in_fastest_ways(std::move(replica));
    hopes.emplace_back(hope, plan);
    if (fastest != plan) hopes.emplace_back(hope, std::move(fastest));
  };
  for (std::size_t i = first; i < priced_.size(); ++i) {
    const PricedStagePlan& each = priced_[i];
    Seconds passes, hope;
    bool has_stages = false;
    for (std::size_t r = 0; r < each.plan.replicas.size(); ++r) {
      const StageReplica& replica = each.plan.replicas[r];
      const Seconds last = each.price.spans[r].front().last;
      passes = std::max(passes, last);
      hope = std::max(hope, interleaving.hope(replica, last));
      has_stages = has_stages || replica.stages.size() > 1;
    }
    if (has_stages) offer(each.price.step - passes + hope, each.plan);
  }
  for (const Mix& mix : mixes_)
    if (is_one_replica(mix) && mix.parts.front().first.stages.size() > 1)
      turned_.push_back(mix.parts.front().first);
  for (const ReplicaShape& shape : turned_) {
    StagePlan plan{{replica_of(shape, question_.global_batch)}};
    if (!has_full_ends(plan.replicas.front()) ||
        !place_stages(plan, costs(), StagePlacing::kByStage))
      continue;
    const Seconds alone(estimate(shape, question_.global_batch));
    offer(interleaving.hope(plan.replicas.front(), alone), plan);
  }
  std::stable_sort(hopes.begin(), hopes.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::set<std::vector<std::vector<std::int64_t>>> seen;
  for (const auto& [hope, plan] : hopes)
    if (seen.size() < kTurned && seen.insert(key_of(plan)).second)
      interleave_plan(plan, interleaving);
  outcome_.simulated += interleaving.simulated();
}

/// Replicas that are identical get the same turns.
void StageSearch::interleave_plan(const StagePlan& plan, Interleaving& interleaving) {
  StagePlan turned = plan;
  std::map<std::pair<ReplicaShape, std::int64_t>, std::optional<StageReplica>> known;
  bool has_turned = false;
  for (StageReplica& replica : turned.replicas) {
    if (replica.stages.size() < 2) continue;
    const auto [at, is_new] = known.try_emplace({shape_of(replica), replica.samples});
    if (is_new) at->second = interleaving.find(replica);
    if (!at->second) continue;
    StageReplica made = *at->second;
    for (std::size_t s = 0; s < made.stages.size(); ++s) {
      made.stages[s].host = replica.stages[made.seats[s]].host;
      made.stages[s].slot = replica.stages[made.seats[s]].slot;
      made.stages[s].more_slots = replica.stages[made.seats[s]].more_slots;
    }
    replica = std::move(made);
    has_turned = true;
  }
  if (!has_turned) return;
  ++outcome_.simulated;
  auto price = evaluator_.price(turned);
  if (!price || !price->fits) return;
  priced_.push_back({std::move(turned), *std::move(price)});
}

void StageSearch::finish(double least) {
  outcome_.shapes = static_cast<std::int64_t>(columns_.shapes().size());
  std::stable_sort(priced_.begin(), priced_.end(),
                   [](const auto& a, const auto& b) { return a.price.step < b.price.step; });
  if (priced_.empty()) {
    outcome_.why.push_back("no combination of replicas could be placed in the hosts");
    return;
  }
  const auto first = std::find_if(priced_.begin(), priced_.end(),
                                  [](const auto& each) { return !each.is_further; });
  if (first != priced_.end() && priced_.front().price.step >= kWorthFurther * first->price.step)
    std::erase_if(priced_, [](const auto& each) { return each.is_further; });
  outcome_.best = priced_.front();
  if (can_interleave()) {
    outcome_.apart_bound = outcome_.lower_bound;
    outcome_.lower_bound = Seconds(least);
    if (is_proved_)
      outcome_.why.push_back(
          "all other plans whose devices have one stage each were ruled out, of interleaved ones "
          "some were tried");
    is_proved_ = false;
  }
  outcome_.lower_bound = std::min(outcome_.lower_bound, outcome_.best->price.step);
  if (!question_.is_bounded) outcome_.lower_bound = std::min(outcome_.lower_bound, Seconds(least));
  const bool is_optimal = is_proved_ || outcome_.gap() <= kOptimalGap;
  outcome_.reason = is_optimal ? StageReason::kOptimal : StageReason::kFeasible;
  add_runner_ups();
}

/// The best ones, and the best of each depth among them: what a program takes may be more than what
/// is said here, most where pipelines are deep. Interleaved ones beside the others.
void StageSearch::add_runner_ups() {
  std::vector<std::size_t> all;
  for (const auto& [further, interleaved] :
       {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
    std::set<int> depths;
    std::vector<std::size_t> chosen, others;
    for (std::size_t i = 0; i < priced_.size(); ++i)
      if (priced_[i].is_further == further && is_interleaved(priced_[i].plan) == interleaved)
        (depths.insert(depth_class(priced_[i].plan)).second ? chosen : others).push_back(i);
    chosen.insert(chosen.end(), others.begin(), others.end());
    const std::size_t most = interleaved ? kTurnedUps : kRunnerUps + 1;
    if (chosen.size() > most) chosen.resize(most);
    all.insert(all.end(), chosen.begin(), chosen.end());
  }
  std::sort(all.begin(), all.end());
  for (const std::size_t i : all)
    if (i > 0) outcome_.runner_ups.push_back(std::move(priced_[i]));
}

}  // namespace

Result<StageOutcome> search_once(const StageQuestion& question) {
  return StageSearch(question).run();
}

}  // namespace motley::search
