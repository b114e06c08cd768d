#include "motley/search/split/split_search.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "motley/testing/random_problem.h"

namespace motley::search {
namespace {

using Setting = SplitEvaluator::Setting;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

SplitSpace space_of(const ToyProblem& toy) {
  auto space = SplitSpace::make(toy.problem, *toy.evaluator);
  EXPECT_TRUE(space.has_value());
  return std::move(*space);
}

bool is_near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::max(1.0, std::abs(b)); }

/// Finds the least model step by trying every split; infinity if none is allowed.
class Exhaustive {
 public:
  explicit Exhaustive(const ToyProblem& toy) : problem_(toy.problem), evaluator_(*toy.evaluator) {}

  double best() {
    samples_.assign(problem_.devices.size(), 0);
    visit(0, problem_.global_batch);
    return best_;
  }

 private:
  void visit(std::size_t device, std::int64_t left) {
    if (device == samples_.size()) {
      if (left == 0) price();
      return;
    }
    for (std::int64_t b = 0; b <= left; b = b == 0 ? problem_.min_samples : b + 1) {
      samples_[device] = b;
      visit(device + 1, left - b);
    }
    samples_[device] = 0;
  }

  void price() {
    BatchSplit split;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      if (samples_[i] == 0) continue;
      split.devices.push_back(problem_.devices[i]);
      split.samples.push_back(samples_[i]);
    }
    for (std::size_t i = 0; i < split.devices.size(); ++i) {
      const auto& memory = problem_.cluster->device(split.devices[i]).memory;
      if (split.samples[i] > problem_.max_samples) return;
      if (memory &&
          evaluator_.peak_bytes(split.devices[i], split.samples[i], setting_of(split)) > *memory) {
        return;
      }
    }
    best_ = std::min(best_, model_step(evaluator_, split));
  }

  const plan::Problem& problem_;
  const SplitEvaluator& evaluator_;
  std::vector<std::int64_t> samples_;
  double best_ = kInfinity;
};

void expect_valid(const plan::Problem& problem, const SplitSpace& space, const BatchSplit& split) {
  EXPECT_EQ(std::accumulate(split.samples.begin(), split.samples.end(), std::int64_t{0}),
            problem.global_batch);
  EXPECT_TRUE(std::is_sorted(split.devices.begin(), split.devices.end()));
  EXPECT_TRUE(space.find_faults(split).empty());
}

TEST(SplitSearch, EqualsExhaustiveSearch) {
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ToyProblem toy = random_problem(seed, {});
    const SplitSpace space = space_of(toy);
    const SplitSearch search = find_best_split(space);
    const double best = Exhaustive(toy).best();
    ASSERT_EQ(search.best.has_value(), best < kInfinity);
    ASSERT_EQ(space.explain_infeasible().empty(), search.best.has_value());
    if (!search.best) continue;
    expect_valid(toy.problem, space, *search.best);
    ASSERT_TRUE(is_near(search.model_seconds, best)) << search.model_seconds << " " << best;
    ASSERT_TRUE(is_near(search.lower_bound, best));
    ASSERT_TRUE(is_near(model_step(*toy.evaluator, *search.best), best));
  }
}

// If kinds order differently by update times, or few devices cannot have their pool's route, the
// bound may be below the best, but never above.
TEST(SplitSearch, BoundHoldsInEveryCase) {
  int exact = 0, total = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ToyProblem toy =
        random_problem(seed, {.ordered_updates = seed % 2 == 0, .one_link = seed % 3 == 0});
    const SplitSpace space = space_of(toy);
    const SplitSearch search = find_best_split(space);
    const double best = Exhaustive(toy).best();
    ASSERT_EQ(search.best.has_value(), best < kInfinity);
    if (!search.best) continue;
    expect_valid(toy.problem, space, *search.best);
    ASSERT_LE(search.lower_bound, best * (1 + 1e-12));
    ASSERT_GE(search.model_seconds, best * (1 - 1e-12));
    ++total;
    if (is_near(search.model_seconds, best)) ++exact;
  }
  EXPECT_GE(exact, 0.95 * total);
}

/// Minimises over at most k devices by trying every value of f, smallest first.
double slow_step_of(const ToyProblem& toy, std::size_t k) {
  const plan::Problem& problem = toy.problem;
  const SplitEvaluator& evaluator = *toy.evaluator;
  const GroupExchanges times = evaluator.group_times(
      {problem.devices.begin(), problem.devices.begin() + static_cast<std::ptrdiff_t>(k)});
  double best = kInfinity;
  for (const DeviceId slowest : problem.devices) {
    const auto bound = update_tails(evaluator.curves(slowest, Setting::kShared));
    const auto tails = exchange_tails(times.exchange, bound);
    std::vector<std::vector<double>> values;  // f of each allowed device at 1, 2, ... up to its cap
    std::vector<double> candidates;
    for (const DeviceId device : problem.devices) {
      const auto& curves = evaluator.curves(device, Setting::kShared);
      const auto own = update_tails(curves);
      if (!own.empty() && own[0] > bound[0]) continue;
      auto& list = values.emplace_back();
      const auto& memory = problem.cluster->device(device).memory;
      for (std::int64_t b = 1; b <= std::min(problem.global_batch, problem.max_samples); ++b) {
        if (memory && evaluator.peak_bytes(device, b, Setting::kShared) > *memory) break;
        list.push_back(step_seconds(curves, tails, static_cast<double>(b)));
        candidates.push_back(list.back());
      }
    }
    std::sort(candidates.begin(), candidates.end());
    const auto holds = [&](double tau) {
      std::vector<std::int64_t> loads;
      for (const auto& list : values) {
        const auto fit = std::upper_bound(list.begin(), list.end(), tau) - list.begin();
        if (fit >= problem.min_samples) loads.push_back(fit);
      }
      std::sort(loads.rbegin(), loads.rend());
      if (loads.size() > k) loads.resize(k);
      return std::accumulate(loads.begin(), loads.end(), std::int64_t{0}) >= problem.global_batch;
    };
    const auto least = std::partition_point(candidates.begin(), candidates.end(),
                                            [&](double tau) { return !holds(tau); });
    if (least != candidates.end()) best = std::min(best, *least + times.blocking);
  }
  return best;
}

double slow_step(const ToyProblem& toy) {
  const plan::Problem& problem = toy.problem;
  const SplitEvaluator& evaluator = *toy.evaluator;
  double best = kInfinity;
  for (const DeviceId device : problem.devices) {
    const auto& memory = problem.cluster->device(device).memory;
    if (problem.global_batch > problem.max_samples) continue;
    if (memory && evaluator.peak_bytes(device, problem.global_batch, Setting::kAlone) > *memory) {
      continue;
    }
    if (problem.global_batch < problem.min_samples) continue;
    best = std::min(best, model_step(evaluator, {{device}, {problem.global_batch}}));
  }
  const auto most = static_cast<std::int64_t>(problem.devices.size());
  for (std::int64_t k = 2; k <= std::min(most, problem.global_batch / problem.min_samples); ++k) {
    best = std::min(best, slow_step_of(toy, static_cast<std::size_t>(k)));
  }
  return best;
}

TEST(SplitSearch, EqualsSlowSolverOnRandomClusters) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ToyProblem toy =
        random_problem(seed, {.least_devices = 2, .most_devices = 16, .most_batch = 60});
    const SplitSearch search = find_best_split(space_of(toy));
    const double best = slow_step(toy);
    ASSERT_EQ(search.best.has_value(), best < kInfinity);
    if (search.best) {
      ASSERT_TRUE(is_near(search.model_seconds, best));
    }
  }
}

// 4, 4 and 8 devices at speeds 4 : 2.2 : 1, compute only. The optimum runs at the mean speed, the
// equal split at the least: (4*4 + 4*2.2 + 8*1) / 16 / 1 = 2.05. With 3280 samples the optimum is
// integer: 400, 220 and 100 samples take 100 s each, the equal 205 take 205 s on the slow ones.
TEST(SplitSearch, EvenToOptimalOfThreeKinds) {
  ToyProblem toy;
  toy.group = no_exchange;
  for (const auto& [count, speed] : {std::pair{4, 4.0}, {4, 2.2}, {8, 1.0}}) {
    for (int i = 0; i < count; ++i) toy.add_device(linear_device(1 / speed));
  }
  toy.finish(3280);
  const SplitSearch search = find_best_split(space_of(toy));
  ASSERT_TRUE(search.best.has_value());
  EXPECT_NEAR(search.model_seconds, 100.0, 1e-9);
  const std::vector<std::int64_t> wanted = {400, 400, 400, 400, 220, 220, 220, 220,
                                            100, 100, 100, 100, 100, 100, 100, 100};
  EXPECT_EQ(search.best->samples, wanted);
  BatchSplit even{toy.problem.devices, std::vector<std::int64_t>(16, 205)};
  EXPECT_NEAR(model_step(*toy.evaluator, even) / search.model_seconds, 2.05, 1e-9);
}

// Two devices, 1 s and 3 s per sample, 8 samples: 6 and 2 take 6 s on both.
TEST(SplitSearch, SplitsBySpeed) {
  ToyProblem toy;
  toy.group = no_exchange;
  toy.add_device(linear_device(1));
  toy.add_device(linear_device(3));
  toy.finish(8);
  const SplitSearch search = find_best_split(space_of(toy));
  ASSERT_TRUE(search.best.has_value());
  EXPECT_EQ(search.best->samples, (std::vector<std::int64_t>{6, 2}));
  EXPECT_DOUBLE_EQ(search.model_seconds, 6);
}

// Together 8 samples take 4 s plus the exchange; alone 8 s.
TEST(SplitSearch, LeavesADeviceIdleWhenTheExchangeCostsMore) {
  ToyProblem cheap = pair_with_exchange(3.5);
  cheap.finish(8);
  const SplitSearch together = find_best_split(space_of(cheap));
  EXPECT_EQ(together.best->devices.size(), 2u);
  EXPECT_DOUBLE_EQ(together.model_seconds, 7.5);
  ToyProblem dear = pair_with_exchange(4.5);
  dear.finish(8);
  const SplitSearch alone = find_best_split(space_of(dear));
  EXPECT_EQ(alone.best->devices, (std::vector<DeviceId>{DeviceId(0)}));
  EXPECT_DOUBLE_EQ(alone.model_seconds, 8);
}

// Threefold times: the same split, threefold step. Twice the devices and the batch: the same step.
TEST(SplitSearch, ScalingLaws) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 random(seed);
    ToyProblem one, slow, twice;
    one.group = slow.group = twice.group = no_exchange;
    const auto batch = static_cast<std::int64_t>(4 + random.below(60));
    for (int i = 0; i < 3; ++i) {
      const double seconds = 0.1 + random.uniform();
      const double fixed = random.uniform();
      one.add_device(linear_device(seconds, fixed));
      slow.add_device(linear_device(3 * seconds, 3 * fixed));
      for (int copy = 0; copy < 2; ++copy) twice.add_device(linear_device(seconds, fixed));
    }
    one.finish(batch);
    slow.finish(batch);
    twice.finish(2 * batch);
    const SplitSearch first = find_best_split(space_of(one));
    const SplitSearch scaled = find_best_split(space_of(slow));
    const SplitSearch doubled = find_best_split(space_of(twice));
    EXPECT_EQ(first.best->samples, scaled.best->samples);
    EXPECT_NEAR(scaled.model_seconds, 3 * first.model_seconds, 1e-9);
    EXPECT_LE(doubled.model_seconds, first.model_seconds + 1e-9);
  }
}

TEST(SplitSearch, MoreIsNeverWorse) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    ToyProblem toy = random_problem(seed, {.least_devices = 2});
    const SplitSearch all = find_best_split(space_of(toy));
    const DeviceId last = toy.problem.devices.back();
    toy.problem.devices.pop_back();
    const SplitSearch some = find_best_split(space_of(toy));
    toy.problem.devices.push_back(last);
    if (some.best) {
      EXPECT_LE(all.model_seconds, some.model_seconds * (1 + 1e-12));
    }
    for (auto& device : toy.cluster->devices) device.memory.reset();
    const SplitSearch unlimited = find_best_split(space_of(toy));
    if (all.best) {
      EXPECT_LE(unlimited.model_seconds, all.model_seconds * (1 + 1e-12));
    }
  }
}

TEST(SplitSearch, FixedGroupUsesEveryMember) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ToyProblem toy = random_problem(seed, {.least_devices = 2, .most_devices = 3});
    const SplitSpace space = space_of(toy);
    const auto split = find_best_split_of(space, toy.problem.devices);
    double best = kInfinity;
    std::vector<std::int64_t> samples(toy.problem.devices.size());
    const auto visit = [&](auto&& self, std::size_t i, std::int64_t left) -> void {
      if (i == samples.size()) {
        const BatchSplit candidate{toy.problem.devices, samples};
        if (left == 0 && space.find_faults(candidate).empty()) {
          best = std::min(best, model_step(*toy.evaluator, candidate));
        }
        return;
      }
      for (samples[i] = 1; samples[i] <= left; ++samples[i]) self(self, i + 1, left - samples[i]);
    };
    visit(visit, 0, toy.problem.global_batch);
    ASSERT_EQ(split.has_value(), best < kInfinity);
    if (!split) continue;
    ASSERT_EQ(split->devices, toy.problem.devices);
    ASSERT_TRUE(is_near(model_step(*toy.evaluator, *split), best));
  }
}

}  // namespace
}  // namespace motley::search
