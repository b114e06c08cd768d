#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "bench/adapt/batch.h"
#include "bench/adapt/replay.h"
#include "peers/import/csv.h"
#include "peers/policies/batch_baselines.h"

namespace motley::bench {
namespace {

using adapt::CurvePoint;

constexpr double kMostLocal = 160;  // memory.csv

/// Reads one GPU's seconds by samples, the mean of both repositories, one worker per GPU. Extends
/// straight to 1 and to the memory limit, then by micro-batches, with an update only in the last.
Result<std::vector<CurvePoint>> read_curve(const peers::CsvTable& table, const std::string& gpu) {
  std::map<double, std::vector<double>> all;
  double update = 0, updates = 0;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    MOTLEY_ASSIGN(const double local, table.positive_number(row, 2));
    MOTLEY_ASSIGN(const double workers, table.positive_number(row, 3));
    if (table.text(row, 1) != gpu || workers != 1) continue;
    MOTLEY_ASSIGN(const double total, table.positive_number(row, 4));
    MOTLEY_ASSIGN(const double each, table.positive_number(row, 8));
    all[local].push_back(total * 1e-3);
    update += each * 1e-3;
    ++updates;
  }
  if (all.size() < 2) return usage_error("bench.jabas", "no profile of " + gpu);
  std::vector<CurvePoint> points;
  for (const auto& [local, times] : all) {
    double sum = 0;
    for (const double each : times) sum += each;
    points.push_back({local, sum / static_cast<double>(times.size())});
  }
  const auto line = [](const CurvePoint& one, const CurvePoint& two, double at) {
    return one.seconds +
           (two.seconds - one.seconds) * (at - one.samples) / (two.samples - one.samples);
  };
  points.insert(points.begin(), {0, line(points[0], points[1], 0)});
  const std::size_t n = points.size();
  if (points.back().samples < kMostLocal)
    points.push_back({kMostLocal, line(points[n - 2], points[n - 1], kMostLocal)});
  const std::vector<CurvePoint> one = points;
  update /= updates;
  constexpr int kMicroBatches = 16;
  for (int count = 2; count <= kMicroBatches; ++count) {
    const auto add = [&](double local) {
      const double seconds = count * adapt::work_seconds({"", one}, local) - (count - 1) * update;
      points.push_back({std::round(count * local), std::max(points.back().seconds, seconds)});
    };
    const double from = kMostLocal * (count - 1) / count;
    add(from);
    for (const CurvePoint& point : one)
      if (point.samples > from) add(point.samples);
  }
  return points;
}

/// Reads times of ResNet-50's gradient buckets over a kind of link; `share`: of backward.
Result<adapt::ExchangeTimes> read_exchange(const peers::CsvTable& table, const std::string& link) {
  std::vector<CurvePoint> points = {};
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.text(row, 0) != link) continue;
    MOTLEY_ASSIGN(const double mib, table.positive_number(row, 2));
    MOTLEY_ASSIGN(const double ms, table.positive_number(row, 4));
    points.push_back({mib, ms * 1e-3});
  }
  adapt::ExchangeTimes times{.share = 0.62};
  const double buckets[] = {7.81, 30.04, 25.04, 25.25, 9.2};
  for (const double bucket : buckets) {
    times.hidden += times.tail;
    times.tail = Seconds(adapt::work_seconds({"", points}, bucket));
  }
  return times;
}

struct JabasCluster {
  std::vector<adapt::BatchOption> options;  // V100, P100, both
};

Result<JabasCluster> read_cluster(const std::string& data) {
  MOTLEY_ASSIGN(const peers::CsvTable compute, peers::CsvTable::read(data + "/jabas/compute.csv"));
  MOTLEY_ASSIGN(const peers::CsvTable reduce, peers::CsvTable::read(data + "/jabas/allreduce.csv"));
  MOTLEY_ASSIGN(const auto v100, read_curve(compute, "V100"));
  MOTLEY_ASSIGN(const auto p100, read_curve(compute, "P100"));
  MOTLEY_ASSIGN(const auto intra, read_exchange(reduce, "intra"));
  MOTLEY_ASSIGN(const auto inter, read_exchange(reduce, "inter"));
  constexpr double kPrice = 3.06;  // of a V100, per hour; the P100's by its Tflops
  adapt::BatchOption fast{"4 V100", {}, intra, 4 * kPrice};
  adapt::BatchOption slow{"4 P100", {}, intra, 4 * kPrice * 9.52 / 14.13};
  for (int i = 0; i < 4; ++i) {
    fast.devices.push_back({fmt::format("v100:{}", i), v100});
    slow.devices.push_back({fmt::format("p100:{}", i), p100});
  }
  adapt::BatchOption both{"4 V100, 4 P100", fast.devices, inter, fast.per_hour + slow.per_hour};
  both.devices.insert(both.devices.end(), slow.devices.begin(), slow.devices.end());
  return JabasCluster{{std::move(fast), std::move(slow), std::move(both)}};
}

const std::vector<std::int64_t> kLocalBatches = {32, 64, 96, 128, 160};

/// Finds the least step in whole samples by bisection, counting device by device what fits.
double search_step(const adapt::BatchOption& option, std::int64_t batch) {
  const auto ready = [&](const adapt::DeviceCurve& curve, std::int64_t samples) {
    return adapt::ready_seconds(option.exchange,
                                adapt::work_seconds(curve, static_cast<double>(samples)));
  };
  double low = 0, high = 1000;
  while (high - low > 1e-9) {
    const double middle = (low + high) / 2;
    std::int64_t fit = 0;
    for (const adapt::DeviceCurve& curve : option.devices) {
      std::int64_t most = 0;
      while (most < static_cast<std::int64_t>(curve.points.back().samples) &&
             ready(curve, most + 1) <= middle)
        ++most;
      fit += most;
    }
    (fit >= batch ? high : low) = middle;
  }
  return high + option.exchange.tail.value;
}

void add_splits(const JabasCluster& cluster, Json& rows) {
  const adapt::BatchOption& all = cluster.options.back();
  fmt::print("\n{:<16}{:<9}{:>8}{:>8}{:>10}{:>8}\n", "split", "policy", "asked", "taken", "step s",
             "over best");
  for (std::int64_t asked = 256; asked <= 8192; asked = asked * 11 / 10)
    for (const char* policy : {"motley", "jabas", "even"}) {
      const std::vector<std::int64_t> samples =
          std::string(policy) == "motley"  ? adapt::split_batch(all, asked)
          : std::string(policy) == "jabas" ? peers::split_identical(all, asked, kLocalBatches)
                                           : peers::split_evenly(all.devices.size(), asked);
      std::int64_t taken = 0;
      for (const std::int64_t each : samples) taken += each;
      const double step = adapt::step_seconds(all, samples).value;
      const double best = search_step(all, taken);
      fmt::print("{:<16}{:<9}{:>8}{:>8}{:>10.4f}{:>8.3f}\n", all.name, policy, asked, taken, step,
                 step / best);
      rows.push_back({{"kind", "set"},
                      {"case", fmt::format("split {}", asked)},
                      {"policy", policy},
                      {"asked", asked},
                      {"taken", taken},
                      {"step_s", step},
                      {"best_step_s", best}});
    }
}

/// Noise scale over the initial batch during a training: log-linear between epochs.
struct NoisePath {
  const char* name;
  double initial_batch, steps_per_epoch, epochs;
  std::vector<std::int64_t> local_batches;        // jabas
  std::vector<std::pair<double, double>> ratios;  // epoch, noise scale over the initial batch
};

double noise_of(const NoisePath& path, double progress) {
  const double epoch = progress / path.steps_per_epoch;
  const auto& ratios = path.ratios;
  std::size_t to = 0;
  while (to < ratios.size() && ratios[to].first < epoch) ++to;
  if (to == 0) return path.initial_batch * ratios.front().second;
  if (to == ratios.size()) return path.initial_batch * ratios.back().second;
  const double part = (epoch - ratios[to - 1].first) / (ratios[to].first - ratios[to - 1].first);
  return path.initial_batch * std::exp((1 - part) * std::log(ratios[to - 1].second) +
                                       part * std::log(ratios[to].second));
}

void add_trainings(const JabasCluster& cluster, int seeds, Json& rows) {
  // ImageNet's and CIFAR-10's noise measured by Pollux, the second from a small batch.
  const NoisePath paths[] = {
      {"imagenet", 256, 5000, 90, kLocalBatches, {{1, 4.6}, {11, 28}, {31, 53}, {61, 72}}},
      {"small",
       32,
       1560,
       60,
       {4, 8, 16, 32, 64, 96, 128, 160},
       {{1, 0.57}, {11, 7.8}, {31, 23}, {61, 53}}}};
  fmt::print("\n{:<16}{:<10}{:>5}{:>14}{:>12}{:>9}{:>9}{:>9}\n", "training", "policy", "seed",
             "s or USD", "over best", "changes", "devices", "last B");
  for (const NoisePath& path : paths)
    for (const auto objective : {adapt::ObjectiveKind::kTime, adapt::ObjectiveKind::kCost}) {
      const bool is_cost = objective == adapt::ObjectiveKind::kCost;
      const ReplayedTask task{
          .name = fmt::format("{} {}", path.name, is_cost ? "cost" : "time"),
          .options = cluster.options,
          .initial_batch = path.initial_batch,
          .most_batch = 8192,
          .least_on_all = path.initial_batch,
          .iterations = path.steps_per_epoch * path.epochs,
          .noise = [path](double progress, double) { return noise_of(path, progress); },
          .objective = objective,
          .samples_per_pass = static_cast<std::int64_t>(path.steps_per_epoch * path.initial_batch),
          .local_batches = path.local_batches};
      for (const char* policy : {"even", "simigrad", "jabas", "motley"})
        for (int seed = 0; seed < seeds; ++seed) {
          const Replayed done = replay(task, policy, static_cast<std::uint64_t>(seed));
          const Replayed known = find_clairvoyant(task, static_cast<std::uint64_t>(seed));
          const double best = is_cost ? known.cost : known.seconds;
          const double spent = is_cost ? done.cost : done.seconds;
          fmt::print("{:<16}{:<10}{:>5}{:>14.1f}{:>12.4f}{:>9}{:>9}{:>9.0f}\n", task.name, policy,
                     seed, spent, spent / best, done.changes, done.device_changes, done.last_batch);
          std::fflush(stdout);
          // A step of the initial batch, in seconds or USD.
          rows.push_back({{"kind", "set"},
                          {"case", task.name},
                          {"policy", policy},
                          {"seed", seed},
                          {"step_s", spent / task.iterations},
                          {"best_step_s", best / task.iterations},
                          {"changes", done.changes},
                          {"device_changes", done.device_changes}});
        }
    }
}

}  // namespace

Result<void> add_set_rows(const std::string& data, int seeds, Json& rows) {
  MOTLEY_ASSIGN(const JabasCluster cluster, read_cluster(data));
  add_splits(cluster, rows);
  add_trainings(cluster, seeds, rows);
  return {};
}

}  // namespace motley::bench
