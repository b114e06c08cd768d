#include "bench/adapt/jabas.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <vector>

#include "bench/simulated_cluster.h"
#include "peers/import/csv.h"
#include "peers/policies/policies.h"

namespace motley::bench {
namespace {

/// Most samples of one pass; more are several passes with gradient accumulation.
constexpr std::int64_t kPass = 160;
constexpr double kBlocking = 6.29e-3;  // batch norm, as they count it
/// Gradient buckets in order of sending, MiB.
constexpr double kBuckets[] = {7.81, 30.04, 25.04, 25.25, 9.2};

struct PassTimes {
  cost::Curve forward, whole;  // data and forward; with backward
  double update = 0;
};

/// Extends a curve to 0 samples along its first two points.
void reach_down(cost::Curve& curve) {
  const auto [x0, y0] = curve.points[0];
  const auto [x1, y1] = curve.points[1];
  curve.points.insert(curve.points.begin(), {0, std::max(y0 - (y1 - y0) / (x1 - x0) * x0, 0.0)});
}

/// Reads the mean of both repositories, with one copy of the model per GPU.
Result<PassTimes> read_pass(const peers::CsvTable& table, const std::string& gpu) {
  std::map<double, std::vector<double>> forward, whole;
  PassTimes times;
  double updates = 0;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.text(row, 1) != gpu || table.text(row, 3) != "1") continue;
    MOTLEY_ASSIGN(const double samples, table.positive_number(row, 2));
    MOTLEY_ASSIGN(const double load, table.positive_number(row, 5));
    MOTLEY_ASSIGN(const double ahead, table.positive_number(row, 6));
    MOTLEY_ASSIGN(const double back, table.positive_number(row, 7));
    MOTLEY_ASSIGN(const double update, table.positive_number(row, 8));
    forward[samples].push_back(1e-3 * (load + ahead));
    whole[samples].push_back(1e-3 * (load + ahead + back));
    times.update += 1e-3 * update;
    updates += 1;
  }
  const auto mean_curve = [](const std::map<double, std::vector<double>>& means) {
    cost::Curve curve;
    for (const auto& [samples, seconds] : means) {
      double sum = 0;
      for (const double each : seconds) sum += each;
      curve.points.emplace_back(samples, sum / static_cast<double>(seconds.size()));
    }
    reach_down(curve);
    return curve;
  };
  times.forward = mean_curve(forward);
  times.whole = mean_curve(whole);
  times.update /= updates;
  return times;
}

/// Makes curves; all exchanges but the last may start with the last pass's backward.
cost::StepCurves curves_of(const PassTimes& pass, std::int64_t batch) {
  cost::StepCurves curves;
  curves.ready.resize(2);
  curves.update = {0, pass.update};
  for (std::int64_t before = 0; before < batch; before += kPass)
    for (std::int64_t more : {1, 32, 64, 96, 128, 160}) {
      const auto passes = static_cast<double>(before / kPass + 1);
      const auto samples = static_cast<double>(before + more);
      const double each = samples / passes;
      const double end = passes * pass.whole.at(each);
      curves.ready[0].points.emplace_back(samples,
                                          end - pass.whole.at(each) + pass.forward.at(each));
      curves.ready[1].points.emplace_back(samples, end);
      curves.end.points.emplace_back(samples, end);
    }
  return curves;
}

Result<cost::GroupExchanges> read_exchanges(const std::string& data) {
  MOTLEY_ASSIGN(const peers::CsvTable table, peers::CsvTable::read(data + "/jabas/allreduce.csv"));
  cost::Curve seconds;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.text(row, 0) != "inter") continue;
    MOTLEY_ASSIGN(const double mib, table.positive_number(row, 2));
    MOTLEY_ASSIGN(const double measured, table.positive_number(row, 4));
    seconds.points.emplace_back(mib, 1e-3 * measured);
  }
  cost::GroupExchanges exchanges{{0, seconds.at(kBuckets[4])}, kBlocking};
  for (std::size_t k = 0; k < 4; ++k) exchanges.exchange[0] += seconds.at(kBuckets[k]);
  return exchanges;
}

}  // namespace

Result<void> run_jabas(const std::string& data, Json& rows) {
  MOTLEY_ASSIGN(const peers::CsvTable table, peers::CsvTable::read(data + "/jabas/compute.csv"));
  MOTLEY_ASSIGN(const PassTimes v100, read_pass(table, "V100"));
  MOTLEY_ASSIGN(const PassTimes p100, read_pass(table, "P100"));
  SimulatedCluster cluster;
  MOTLEY_ASSIGN(cluster.exchanges, read_exchanges(data));
  std::map<std::string_view, std::vector<double>> over, steps;
  for (int i = 0; i <= 20; ++i) {
    cluster.batch = std::llround(256 * std::pow(2, i / 4.0));
    cluster.curves.clear();
    cluster.limits.clear();
    for (int device = 0; device < 8; ++device) {
      cluster.curves.push_back(curves_of(device < 4 ? v100 : p100, cluster.batch));
      cluster.limits.push_back(
          {.device = fmt::format("{}:{}", device < 4 ? "v100" : "p100", device)});
    }
    for (const auto& [name, maker] : peers::split_policies()) {
      MOTLEY_ASSIGN(auto policy,
                    adapt::make_split_policy(name, {cluster.limits, 50}, peers::split_policies()));
      const Course course =
          run_policy(*policy, cluster, {.steps = 100, .seed = static_cast<std::uint64_t>(i) + 1});
      double mean = 0;
      for (std::size_t step = 50; step < 100; ++step) mean += course.excess[step] / 50;
      over[name].push_back(1 + mean);
      steps[name].push_back(static_cast<double>(steps_to(course, 1, 0.02)));
      rows.push_back({{"kind", "jabas"},
                      {"case", fmt::format("B={}", cluster.batch)},
                      {"policy", name},
                      {"step_s", (1 + mean) * course.best},
                      {"best_step_s", course.best},
                      {"steps_to_2pct", steps[name].back()}});
    }
  }
  fmt::print("jabas: 21 batches     mean over best    worst   steps to 2 %, worst\n");
  for (const auto& [name, maker] : peers::split_policies()) {
    double mean = 0;
    for (const double each : over[name]) mean += each / static_cast<double>(over[name].size());
    fmt::print("{:<21} {:>14.4f} {:>8.4f} {:>8.0f}\n", name, mean,
               *std::max_element(over[name].begin(), over[name].end()),
               *std::max_element(steps[name].begin(), steps[name].end()));
  }
  return {};
}

}  // namespace motley::bench
