#include "bench/adapt/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "peers/policies/policies.h"

namespace motley::bench {
namespace {

constexpr std::int64_t kSlowAt = 101, kEpochSteps = 50;
constexpr double kBound = 0.02;

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5);
  return values[at];
}

/// Draws clusters of one half, every second one with a measured shape.
std::vector<SimulatedCluster> draw_clusters(const std::vector<MeasuredShape>& shapes, Half half,
                                            bool is_full) {
  std::vector<SimulatedCluster> clusters;
  const std::uint64_t first = half == Half::kMade ? 1 : 1001;
  for (std::uint64_t seed = first; seed < first + (is_full ? 200 : 20); ++seed) {
    const MeasuredShape* shape = seed % 2 == 0 ? &shapes[seed / 2 % shapes.size()] : nullptr;
    clusters.push_back(draw_cluster(seed, half, shape));
  }
  return clusters;
}

Result<void> run_policies(const std::vector<SimulatedCluster>& clusters, const std::string& kind,
                          double jitter, Json& rows) {
  for (const auto& [name, maker] : peers::split_policies()) {
    std::vector<double> steps, changes, excess, told;
    for (std::size_t i = 0; i < clusters.size(); ++i) {
      MOTLEY_ASSIGN(auto policy, adapt::make_split_policy(name, {clusters[i].limits, kEpochSteps},
                                                          peers::split_policies()));
      const std::int64_t first = kind == "change" ? kSlowAt : 1;
      const Course course = run_policy(*policy, clusters[i],
                                       {.steps = first + 199,
                                        .jitter = jitter,
                                        .slow_at = kind == "change" ? kSlowAt : -1,
                                        .seed = i + 1});
      const auto from = course.excess.begin() + (first - 1);
      steps.push_back(static_cast<double>(steps_to(course, first, kBound)));
      changes.push_back(static_cast<double>(course.changes));
      told.push_back(static_cast<double>(course.told));
      excess.push_back(std::accumulate(from, course.excess.end(), 0.0) / 200);
      rows.push_back({{"kind", kind},
                      {"case", fmt::format("{} {}", clusters[i].name, i + 1)},
                      {"policy", name},
                      {"jitter", jitter},
                      {"devices", clusters[i].curves.size()},
                      {"steps_to_2pct", steps.back()},
                      {"changes", course.changes},
                      {"told", course.told},
                      {"mean_excess", excess.back()}});
    }
    const auto within = [&](double most) {
      return 100.0 *
             static_cast<double>(
                 std::count_if(steps.begin(), steps.end(), [&](double x) { return x <= most; })) /
             static_cast<double>(steps.size());
    };
    fmt::print(
        "{:<7} {:<9} {:>4.0f} % {:>6.0f} {:>6.0f} {:>6.0f} {:>5.0f} % {:>5.0f} % {:>8.1f} % "
        "{:>7.0f} {:>5.1f}\n",
        kind, name, 100 * jitter, quantile(steps, 0.5), quantile(steps, 0.9), quantile(steps, 1),
        within(10), within(15), 100 * quantile(excess, 0.5), quantile(changes, 0.5),
        std::accumulate(told.begin(), told.end(), 0.0) / static_cast<double>(told.size()));
    std::fflush(stdout);
  }
  return {};
}

Result<void> run_half(const std::string& data, const std::string& kind, bool is_full, Half half,
                      Json& rows) {
  MOTLEY_ASSIGN(std::vector<MeasuredShape> shapes, read_shapes(data));
  // Two tasks' shapes are for development, two for judging.
  const auto middle = shapes.begin() + 2;
  const std::vector<MeasuredShape> own =
      half == Half::kMade ? std::vector(shapes.begin(), middle) : std::vector(middle, shapes.end());
  const std::vector<SimulatedCluster> clusters = draw_clusters(own, half, is_full);
  fmt::print("{:<7} {:<9} jitter median   90 %  worst   <=10    <=15  over best  changes  told\n",
             "kind", "policy");
  for (const double jitter : {0.02, 0.1})
    MOTLEY_RETURN_IF_ERROR(run_policies(clusters, kind, jitter, rows));
  return {};
}

}  // namespace

Result<void> run_split(const std::string& data, const std::string& kind, bool is_full, Json& rows) {
  return run_half(data, kind, is_full, Half::kJudged, rows);
}

Result<void> run_split_made(const std::string& data, const std::string& kind, bool is_full,
                            Json& rows) {
  return run_half(data, kind, is_full, Half::kMade, rows);
}

}  // namespace motley::bench
