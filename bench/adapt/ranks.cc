#include "bench/adapt/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "bench/simulated_cluster.h"
#include "motley/adapt/split_policy.h"

namespace motley::bench {
namespace {

constexpr double kSpeeds[] = {0.8, 0.4, 0.2};
constexpr double kRanksBound = 0.05;
constexpr std::int64_t kSteps = 44, kRankSlowsAt = 21;
constexpr std::uint64_t kTrainings = 200;

/// Seconds of a core: fixed, and per sample.
struct Script {
  const char* name;
  std::int64_t batch;
  double fixed, each;
};
constexpr Script kScripts[] = {{"mlp", 2799, 0.003, 0.000031},
                               {"cnn", 561, 0.0036, 0.00037},
                               {"gpt", 111, 0.0036, 0.0036},
                               {"small gpt", 48, 0.007, 0.00195}};

/// The spread of ranks' times, on a quiet machine and on a shared one.
struct Noise {
  const char* name;
  double jitter, first, late;
};
constexpr Noise kNoises[] = {{"quiet", 0.04, 0.1, 0.03}, {"shared", 0.08, 0.15, 0.1}};

SimulatedCluster cluster_of(const Script& script) {
  SimulatedCluster cluster{.name = script.name, .batch = script.batch};
  const auto most = static_cast<double>(script.batch);
  for (const double speed : kSpeeds) {
    cost::StepCurves curves;
    curves.end.points = {{0, script.fixed / speed},
                         {most, (script.fixed + script.each * most) / speed}};
    cluster.curves.push_back(std::move(curves));
    cluster.limits.push_back({.device = std::to_string(cluster.limits.size())});
  }
  return cluster;
}

}  // namespace

void add_ranks_rows(RanksKind kind, Json& rows) {
  const bool is_slow = kind == RanksKind::kSlow;
  const std::string name = is_slow ? "ranks-slow" : "ranks";
  const std::int64_t first = is_slow ? kRankSlowsAt : 1;
  fmt::print("{:<11} {:<10} {:<7} median   90 %  worst    <=10  changes  over best\n", "kind",
             "script", "machine");
  for (const Noise& noise : kNoises)
    for (const Script& script : kScripts) {
      std::vector<double> steps, changes, excess;
      for (std::uint64_t seed = 1; seed <= kTrainings; ++seed) {
        const SimulatedCluster cluster = cluster_of(script);
        adapt::SplitPolicy policy(cluster.limits);
        const Course course = run_policy(policy, cluster,
                                         {.steps = kSteps,
                                          .jitter = noise.jitter,
                                          .first = noise.first,
                                          .late = noise.late,
                                          .lag = 1,
                                          .slow_at = is_slow ? kRankSlowsAt : -1,
                                          .slow_device = 0,
                                          .seen_from = 2,
                                          .seed = seed});
        steps.push_back(static_cast<double>(steps_to(course, first, kRanksBound)));
        changes.push_back(static_cast<double>(course.changes));
        excess.push_back(
            std::accumulate(course.excess.begin() + (first - 1), course.excess.end(), 0.0) /
            static_cast<double>(kSteps - first + 1));
      }
      const auto mean = [](const std::vector<double>& values) {
        return std::accumulate(values.begin(), values.end(), 0.0) /
               static_cast<double>(values.size());
      };
      const double within = static_cast<double>(std::count_if(steps.begin(), steps.end(),
                                                              [](double x) { return x <= 10; })) /
                            static_cast<double>(steps.size());
      std::sort(steps.begin(), steps.end());
      const double median = steps[steps.size() / 2], most = steps[steps.size() * 9 / 10];
      rows.push_back({{"kind", name},
                      {"case", fmt::format("{}, {}", script.name, noise.name)},
                      {"policy", "motley"},
                      {"median", median},
                      {"most_of_ten", most},
                      {"worst", steps.back()},
                      {"within_10", within},
                      {"changes", mean(changes)},
                      {"mean_excess", mean(excess)}});
      fmt::print("{:<11} {:<10} {:<7} {:>6.0f} {:>6.0f} {:>6.0f} {:>5.0f} % {:>8.1f} {:>8.1f} %\n",
                 name, script.name, noise.name, median, most, steps.back(), 100 * within,
                 mean(changes), 100 * mean(excess));
      std::fflush(stdout);
    }
}

}  // namespace motley::bench
