#include "motley/search/stages/stage_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "motley/search/stages/sample_bound.h"
#include "motley/search/stages/whole_replicas.h"

namespace motley::search {
namespace {

constexpr double kGrowth = 1.3;          // of a time that is too short
constexpr double kBoundPrecision = 3e-3;  // between a time that is proved impossible and one that is not
constexpr double kShapePrecision = 1e-2;  // of the search that only collects shapes
constexpr double kRingRounds = 2;         // of an exchange over many hosts
constexpr double kOptimalGap = 1e-3;
constexpr std::size_t kMostOffers = 48;   // shapes that are put together
constexpr std::size_t kRunnerUps = 4;

/// Shapes in whole numbers.
struct Mix {
  std::vector<std::pair<ReplicaShape, int>> parts;
  bool operator<(const Mix& other) const { return parts < other.parts; }
};

/// Largest time that is proved too short, smallest that is not.
struct Bracket {
  double impossible = 0, possible = 0;
  SampleAnswer answer;  // at `possible`
};

Bracket bisect(SampleBound& bound, double least, std::int64_t samples, double precision) {
  Bracket bracket{least, least * (1 + 1e-9), {}};
  for (bracket.answer = bound.ask(bracket.possible, samples); !bracket.answer.is_possible;
       bracket.answer = bound.ask(bracket.possible, samples)) {
    bracket.impossible = bracket.possible;
    bracket.possible *= kGrowth;
  }
  while (bracket.possible > bracket.impossible * (1 + precision)) {
    const double middle = std::sqrt(bracket.possible * bracket.impossible);
    SampleAnswer answer = bound.ask(middle, samples);
    if (answer.is_possible) {
      bracket.possible = middle;
      bracket.answer = std::move(answer);
    } else {
      bracket.impossible = middle;
    }
  }
  return bracket;
}

class StageSearch {
 public:
  explicit StageSearch(const StageQuestion& question)
      : question_(question),
        sums_(*question.costs),
        free_(sums_, {}, question.limits),
        ringed_(sums_, {kRingRounds}, question.limits),
        evaluator_(sums_) {}

  Result<StageOutcome> run() {
    for (const std::string& note : costs().notes()) outcome_.why.push_back(note);
    if (!has_shape()) {
      explain_infeasible();
      return std::move(outcome_);
    }
    const double least = rate_bound(sums_, question_.global_batch) * (1 - 1e-9);
    SampleBound free(free_, columns_), ringed(ringed_, columns_);
    const Bracket bound = bisect(free, least, question_.global_batch, kBoundPrecision);
    outcome_.lower_bound = Seconds(bound.impossible);
    const Bracket start =
        bisect(ringed, bound.impossible, question_.global_batch, kShapePrecision);
    outcome_.programs = free.programs() + ringed.programs();
    add_mixes(start);
    MOTLEY_RETURN_IF_ERROR(price_mixes());
    finish();
    return std::move(outcome_);
  }

 private:
  const StageCosts& costs() const { return *question_.costs; }

  bool has_shape() const {
    const std::vector<double> ones(costs().pools().size(), 1.0);
    for (const std::int64_t batch : costs().micro_batches())
      if (batch <= question_.global_batch && free_.cheapest({1e15, batch, batch, ones}))
        return true;
    return false;
  }
  void explain_infeasible();
  void add_mixes(const Bracket& start);
  void add_mix(double seconds, const std::vector<double>& prices);
  std::int64_t samples_of(const Mix& mix, double seconds) const;
  double seconds_of(const Mix& mix) const;
  Result<void> price_mixes();
  Result<void> price_mix(const Mix& mix);
  Result<std::optional<PricedStagePlan>> price_placed(Mix mix, StagePlacing placing);
  Result<std::vector<std::int64_t>> share(const Mix& mix, const StagePlan& plan,
                                          const std::vector<std::size_t>& first_of);
  Result<void> move_layers(StageReplica& replica) const;
  void finish();

  const StageQuestion& question_;
  StageSums sums_;
  ShapeSearch free_, ringed_;
  StageEvaluator evaluator_;
  ShapeColumns columns_;
  std::vector<Mix> mixes_;
  std::vector<PricedStagePlan> priced_;
  StageOutcome outcome_;
};

void StageSearch::explain_infeasible() {
  for (std::size_t u = 0; u < costs().units().size(); ++u) {
    const StageUnit& unit = costs().units()[u];
    const DevicePool& pool = costs().pools()[unit.pool];
    std::int64_t largest = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < costs().layers(); ++i) {
      const std::int64_t bytes =
          sums_.bytes(u, i, i + 1).total(costs().micro_batches().front(), 1);
      if (bytes > largest) largest = bytes, at = i;
    }
    if (largest > pool.memory.value)
      outcome_.why.push_back(fmt::format(
          "layer {} alone needs {:.1f} GB on {} at degree {}, which has {:.1f} GB", at,
          static_cast<double>(largest) * 1e-9, pool.kind, unit.degree,
          static_cast<double>(pool.memory.value) * 1e-9));
  }
  outcome_.why.push_back("no replica fits: in no cut into stages does every stage fit a device");
}

std::int64_t StageSearch::samples_of(const Mix& mix, double seconds) const {
  std::int64_t samples = 0;
  for (const auto& [shape, count] : mix.parts)
    samples += count * ringed_.most_samples(shape, seconds, question_.global_batch);
  return samples;
}

double StageSearch::seconds_of(const Mix& mix) const {
  double below = outcome_.lower_bound.value, above = below;
  while (samples_of(mix, above) < question_.global_batch) {
    below = above;
    above *= kGrowth;
  }
  for (int i = 0; i < 30 && above > below * (1 + 1e-6); ++i) {
    const double middle = (below + above) / 2;
    (samples_of(mix, middle) < question_.global_batch ? below : above) = middle;
  }
  return above;
}

/// The best mix at a time, from the shapes that are worth most there.
void StageSearch::add_mix(double seconds, const std::vector<double>& prices) {
  std::vector<std::pair<double, std::size_t>> worth;
  for (std::size_t i = 0; i < columns_.shapes().size(); ++i) {
    const ReplicaShape& shape = columns_.shapes()[i];
    const auto does =
        static_cast<double>(ringed_.most_samples(shape, seconds, question_.global_batch));
    double price = 1e-9;
    const std::vector<int> devices = ringed_.devices(shape);
    for (std::size_t p = 0; p < devices.size(); ++p) price += prices[p] * devices[p];
    if (does > 0) worth.emplace_back(-does / price, i);
  }
  std::sort(worth.begin(), worth.end());
  if (worth.size() > kMostOffers) worth.resize(kMostOffers);
  std::vector<ShapeOffer> offers;
  for (const auto& [negative, i] : worth) {
    const ReplicaShape& shape = columns_.shapes()[i];
    offers.push_back({ringed_.most_samples(shape, seconds, question_.global_batch),
                      ringed_.devices(shape)});
  }
  std::vector<int> devices;
  for (const DevicePool& pool : costs().pools()) devices.push_back(pool.devices);
  const std::vector<int> counts = choose_replicas(offers, devices);
  Mix mix;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) mix.parts.emplace_back(columns_.shapes()[worth[i].second], counts[i]);
  std::sort(mix.parts.begin(), mix.parts.end());
  if (!mix.parts.empty() && std::find_if(mixes_.begin(), mixes_.end(), [&](const Mix& known) {
                              return known.parts == mix.parts;
                            }) == mixes_.end())
    mixes_.push_back(std::move(mix));
}

void StageSearch::add_mixes(const Bracket& start) {
  for (const double factor : {1.0, 1.01, 1.025, 1.05, 1.1, 1.2})
    add_mix(start.possible * factor, start.answer.prices);
  std::vector<std::pair<double, Mix>> ranked;
  for (Mix& mix : mixes_) ranked.emplace_back(seconds_of(mix), std::move(mix));
  std::sort(ranked.begin(), ranked.end());
  mixes_.clear();
  for (auto& [seconds, mix] : ranked) mixes_.push_back(std::move(mix));
}

Result<void> StageSearch::price_mixes() {
  for (const Mix& mix : mixes_) {
    MOTLEY_RETURN_IF_ERROR(price_mix(mix));
  }
  return {};
}

Result<void> StageSearch::price_mix(const Mix& mix) {
  std::optional<PricedStagePlan> best;
  for (const StagePlacing placing : {StagePlacing::kByStage, StagePlacing::kByReplica}) {
    MOTLEY_ASSIGN(std::optional<PricedStagePlan> priced, price_placed(mix, placing));
    if (priced && (!best || priced->price.step < best->price.step)) best = std::move(priced);
  }
  if (best) priced_.push_back(std::move(*best));
  return {};
}

/// Layers between neighbours, as long as the replica alone gets quicker by it.
Result<void> StageSearch::move_layers(StageReplica& replica) const {
  MOTLEY_ASSIGN(Seconds best, evaluator_.pipeline(replica));
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (std::size_t s = 0; s + 1 < replica.stages.size(); ++s)
      for (const int by : {-1, 1}) {
        StageReplica tried = replica;
        const auto cut = static_cast<std::size_t>(static_cast<std::int64_t>(tried.stages[s].end) + by);
        tried.stages[s].end = tried.stages[s + 1].first = cut;
        if (cut <= tried.stages[s].first || cut >= tried.stages[s + 1].end) continue;
        ReplicaShape shape{{}, tried.micro_batch};
        for (const PlannedStage& stage : tried.stages)
          shape.stages.push_back({stage.first, stage.end, stage.unit});
        if (!free_.is_valid(shape)) continue;
        MOTLEY_ASSIGN(const Seconds time, evaluator_.pipeline(tried));
        if (time.value >= best.value * (1 - 1e-4)) continue;
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
    double below = outcome_.lower_bound.value / 2, above = below;
    const auto at = [&](double time) {
      std::int64_t sum = 0;
      for (std::size_t i = 0; i < mix.parts.size(); ++i)
        sum += mix.parts[i].second *
               ringed_.most_samples(mix.parts[i].first, time / slower[i], question_.global_batch);
      return sum;
    };
    while (at(above) < question_.global_batch) above *= kGrowth;
    for (int i = 0; i < 24; ++i) {
      const double middle = (below + above) / 2;
      (at(middle) < question_.global_batch ? below : above) = middle;
    }
    seconds = above;
    for (std::size_t i = 0; i < mix.parts.size(); ++i) {
      const ReplicaShape& shape = mix.parts[i].first;
      samples[i] = ringed_.most_samples(shape, seconds / slower[i], question_.global_batch);
      if (samples[i] == 0) continue;
      StageReplica replica = plan.replicas[first_of[i]];
      replica.samples = samples[i];
      MOTLEY_ASSIGN(const Seconds time, evaluator_.pipeline(replica));
      // Exchange and update of the first stage, as the model has them.
      const auto& first = shape.stages.front();
      const WorkSums& one = sums_.work(first.unit, shape.micro_batch);
      const double post = one.update[first.end] + ringed_.exchange(first.unit, 0, first.end);
      slower[i] = (time.value + post) / ringed_.seconds(shape, samples[i]);
    }
  }
  return samples;
}

Result<std::optional<PricedStagePlan>> StageSearch::price_placed(Mix mix, StagePlacing placing) {
  StagePlan plan;
  std::vector<std::size_t> first_of;
  for (const auto& [shape, count] : mix.parts) {
    first_of.push_back(plan.replicas.size());
    StageReplica replica;
    replica.micro_batch = shape.micro_batch;
    replica.samples = 1;
    for (const ShapeStage& stage : shape.stages)
      replica.stages.push_back({stage.first, stage.end, stage.unit});
    plan.replicas.insert(plan.replicas.end(), static_cast<std::size_t>(count), replica);
  }
  if (!place_stages(plan, costs(), placing)) return std::nullopt;
  MOTLEY_ASSIGN(std::vector<std::int64_t> samples, share(mix, plan, first_of));
  // Better cuts and schedules for what each does now; then samples again.
  for (std::size_t i = 0; i < mix.parts.size(); ++i) {
    StageReplica& first = plan.replicas[first_of[i]];
    first.samples = std::max<std::int64_t>(1, samples[i]);
    MOTLEY_RETURN_IF_ERROR(evaluator_.choose_schedule(first));
    if (!question_.limits.one_layer_stages) {
      MOTLEY_RETURN_IF_ERROR(move_layers(first));
    }
    for (int r = 0; r < mix.parts[i].second; ++r) {
      StageReplica& replica = plan.replicas[first_of[i] + static_cast<std::size_t>(r)];
      replica.schedule = first.schedule;
      for (std::size_t s = 0; s < first.stages.size(); ++s) {
        replica.stages[s].first = first.stages[s].first;
        replica.stages[s].end = first.stages[s].end;
      }
    }
    for (std::size_t s = 0; s < first.stages.size(); ++s) {
      mix.parts[i].first.stages[s].first = first.stages[s].first;
      mix.parts[i].first.stages[s].end = first.stages[s].end;
    }
  }
  MOTLEY_ASSIGN(samples, share(mix, plan, first_of));
  std::int64_t excess = -question_.global_batch;
  std::vector<std::pair<double, std::size_t>> heap;  // time, replica
  for (std::size_t i = 0; i < mix.parts.size(); ++i)
    for (int r = 0; r < mix.parts[i].second; ++r) {
      const std::size_t index = first_of[i] + static_cast<std::size_t>(r);
      plan.replicas[index].samples = samples[i];
      excess += samples[i];
      heap.emplace_back(ringed_.seconds(mix.parts[i].first, std::max<std::int64_t>(1, samples[i])), index);
    }
  std::sort(heap.rbegin(), heap.rend());
  for (std::size_t k = 0; excess > 0; k = (k + 1) % heap.size()) {
    StageReplica& replica = plan.replicas[heap[k].second];
    const std::int64_t rest = replica.samples % replica.micro_batch;
    const std::int64_t less = std::min({excess, rest > 0 ? rest : replica.micro_batch, replica.samples});
    replica.samples -= less;
    excess -= less;
  }
  std::erase_if(plan.replicas, [](const StageReplica& replica) { return replica.samples == 0; });
  ++outcome_.simulated;
  MOTLEY_ASSIGN(StagePrice price, evaluator_.price(plan));
  if (!price.fits) return std::nullopt;
  return PricedStagePlan{std::move(plan), std::move(price)};
}

void StageSearch::finish() {
  outcome_.shapes = static_cast<std::int64_t>(columns_.shapes().size());
  std::stable_sort(priced_.begin(), priced_.end(), [](const auto& a, const auto& b) {
    return a.price.step < b.price.step;
  });
  if (priced_.empty()) {
    outcome_.why.push_back("no combination of replicas could be placed in the hosts");
    return;
  }
  outcome_.best = priced_.front();
  outcome_.lower_bound = std::min(outcome_.lower_bound, outcome_.best->price.step);
  outcome_.reason =
      outcome_.gap() <= kOptimalGap ? StageReason::kOptimal : StageReason::kFeasible;
  for (std::size_t i = 1; i < priced_.size() && outcome_.runner_ups.size() < kRunnerUps; ++i)
    outcome_.runner_ups.push_back(std::move(priced_[i]));
}

}  // namespace

Result<StageOutcome> find_stage_plan(const StageQuestion& question) {
  if (question.global_batch < 1)
    return usage_error("search.stages",
                       fmt::format("a batch of {} samples, wanted 1 or more", question.global_batch));
  return StageSearch(question).run();
}

}  // namespace motley::search
