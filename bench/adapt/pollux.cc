#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "bench/adapt/batch.h"
#include "bench/adapt/replay.h"
#include "motley/base/statistics.h"
#include "peers/import/csv.h"

namespace motley::bench {
namespace {

using adapt::CurvePoint;

/// Limits of Pollux's four tasks, from its data's README.
struct PolluxTask {
  const char* name;
  double initial, most, least_local, most_local, samples_per_pass;
  adapt::LearningRateRule rule;
};
constexpr PolluxTask kPolluxTasks[] = {
    {"cifar10", 128, 4096, 32, 1024, 391 * 128, adapt::LearningRateRule::kAdaScale},
    {"bert", 12, 384, 4, 12, 7387 * 12, adapt::LearningRateRule::kSquareRoot},
    {"ncf", 256, 32768, 32, 32768, 19418 * 256, adapt::LearningRateRule::kSquareRoot},
    {"yolov3", 8, 512, 4, 8, 2069 * 8, adapt::LearningRateRule::kAdaScale},
};

/// A placement's step in seconds, and a single GPU's without exchange.
struct PolluxStep {
  double local, seconds, alone;
};

/// Reads a single GPU's work by local batch, without exchange.
Result<std::vector<CurvePoint>> read_alone(const peers::CsvTable& table, const PolluxTask& of) {
  std::map<double, double> by_batch;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.text(row, 0) != "1") continue;
    MOTLEY_ASSIGN(const double local, table.positive_number(row, 1));
    MOTLEY_ASSIGN(const double step, table.positive_number(row, 2));
    MOTLEY_ASSIGN(const double sync, table.number(row, 3));
    if (local <= of.most_local) by_batch[local] = step - sync;
  }
  std::vector<double> seconds;
  for (const auto& [local, each] : by_batch) seconds.push_back(each);
  make_nondecreasing(seconds);
  std::vector<CurvePoint> points;
  for (const auto& [local, each] : by_batch) points.push_back({local, seconds[points.size()]});
  // Smaller ones were not measured: extends by the first slope, or the overall one if less.
  const auto slope = [&](const CurvePoint& to) {
    return (to.seconds - points[0].seconds) / (to.samples - points[0].samples);
  };
  const double less = std::min(slope(points[1]), slope(points.back()));
  points.insert(points.begin(), {1, points[0].seconds - less * (points[0].samples - 1)});
  return points;
}

/// Extends a curve beyond its last point by equal micro-batches.
std::vector<CurvePoint> in_micro_batches(const std::vector<CurvePoint>& one, int most) {
  const adapt::DeviceCurve curve{"", one};
  std::vector<CurvePoint> points = one;
  const double cap = one.back().samples;
  for (int count = 2; count <= most; ++count) {
    const double from = cap * (count - 1) / count;
    const auto add = [&](double local) {
      points.push_back(
          {std::round(count * local),
           std::max(points.back().seconds, count * adapt::work_seconds(curve, local))});
    };
    add(from);
    for (const CurvePoint& point : one)
      if (point.samples > from) add(point.samples);
  }
  return points;
}

/// Fits a placement's tail + max(0, hidden - share * work) by relative least squares over a grid.
Result<adapt::ExchangeTimes> fit_exchange(const peers::CsvTable& table,
                                          const std::string& placement,
                                          const std::vector<CurvePoint>& alone) {
  std::vector<PolluxStep> steps;
  double most = 0;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    if (table.text(row, 0) != placement) continue;
    MOTLEY_ASSIGN(const double local, table.positive_number(row, 1));
    MOTLEY_ASSIGN(const double step, table.positive_number(row, 2));
    if (local > alone.back().samples) continue;
    steps.push_back({local, step, adapt::work_seconds({"", alone}, local)});
    most = std::max(most, step - steps.back().alone);
  }
  adapt::ExchangeTimes best;
  double least = -1;
  for (int s = 0; s <= 20; ++s)
    for (int h = 0; h <= 60; ++h) {
      adapt::ExchangeTimes each{.hidden = Seconds(most * h / 30), .share = s / 20.0};
      double tail = 0, weight = 0;
      for (const PolluxStep& step : steps) {
        const double ready = adapt::ready_seconds(each, step.alone);
        tail += (step.seconds - ready) / (step.seconds * step.seconds);
        weight += 1 / (step.seconds * step.seconds);
      }
      each.tail = Seconds(std::max(0.0, tail / weight));
      double error = 0;
      for (const PolluxStep& step : steps)
        error += std::pow(
            (adapt::ready_seconds(each, step.alone) + each.tail.value) / step.seconds - 1, 2);
      if (least >= 0 && error >= least) continue;
      least = error;
      best = each;
    }
  return best;
}

/// log(noise scale / initial batch) by progress, of one fixed batch.
using Trajectory = std::vector<CurvePoint>;

Result<std::map<double, Trajectory>> read_noise(const std::string& folder) {
  std::map<double, Trajectory> all;  // by log of the batch
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (!name.starts_with("validation-")) continue;
    MOTLEY_ASSIGN(const peers::CsvTable table, peers::CsvTable::read(entry.path().string()));
    Trajectory& of = all[std::log(std::stod(name.substr(11)))];
    for (std::size_t row = 0; row < table.rows(); ++row) {
      MOTLEY_ASSIGN(const double progress, table.positive_number(row, 0));
      MOTLEY_ASSIGN(const double gradient, table.number(row, 3));
      MOTLEY_ASSIGN(const double variance, table.number(row, 4));
      if (gradient > 0 && variance > 0) of.push_back({progress, std::log(variance / gradient)});
    }
  }
  return all;
}

double interpolate(const Trajectory& of, double progress) {
  const auto to = std::lower_bound(
      of.begin(), of.end(), progress,
      [](const CurvePoint& point, double wanted) { return point.samples < wanted; });
  if (to == of.begin()) return of.front().seconds;
  if (to == of.end()) return of.back().seconds;
  const CurvePoint& from = *(to - 1);
  return from.seconds +
         (to->seconds - from.seconds) * (progress - from.samples) / (to->samples - from.samples);
}

double interpolate(const std::map<double, Trajectory>& all, double progress, double log_batch) {
  const auto to = all.lower_bound(log_batch);
  if (to == all.begin()) return interpolate(to->second, progress);
  const auto from = std::prev(to);
  if (to == all.end()) return interpolate(from->second, progress);
  const double part = (log_batch - from->first) / (to->first - from->first);
  return (1 - part) * interpolate(from->second, progress) +
         part * interpolate(to->second, progress);
}

/// Makes four devices at 4 times a T4's speed, four at 2.2 and twice four at 1, on a host each;
/// groups as hosts join, and one and two of the fastest.
Result<ReplayedTask> make_task(const std::string& data, const PolluxTask& of) {
  const std::string folder = data + "/pollux/" + of.name;
  MOTLEY_ASSIGN(const peers::CsvTable placements,
                peers::CsvTable::read(folder + "/placements.csv"));
  MOTLEY_ASSIGN(const auto alone, read_alone(placements, of));
  const std::vector<CurvePoint> curve = in_micro_batches(alone, of.most_local > 1000 ? 1 : 8);
  ReplayedTask task{.name = of.name,
                    .initial_batch = of.initial,
                    .most_batch = of.most,
                    .least_on_all = std::max(of.initial, 16 * of.least_local),
                    .rule = of.rule,
                    .samples_per_pass = static_cast<std::int64_t>(of.samples_per_pass)};
  constexpr double kSpeeds[] = {4, 2.2, 1, 1};  // of hosts
  const std::pair<const char*, int> groups[] = {{"1", 1},  {"2", 2},    {"4", 4},
                                                {"44", 8}, {"444", 12}, {"4444", 16}};
  for (const auto& [placement, devices] : groups) {
    adapt::BatchOption option{.name = fmt::format("{} GPUs", devices)};
    if (devices > 1) {
      MOTLEY_ASSIGN(option.exchange, fit_exchange(placements, placement, alone));
    }
    for (int i = 0; i < devices; ++i) {
      const double speed = kSpeeds[i / 4];
      adapt::DeviceCurve device{fmt::format("h{}:{}", i / 4, i % 4), curve};
      for (CurvePoint& point : device.points) point.seconds /= speed;
      option.devices.push_back(std::move(device));
      option.per_hour += speed;
    }
    task.options.push_back(std::move(option));
  }
  for (const CurvePoint& point : alone)
    if (point.samples >= of.least_local)
      task.local_batches.push_back(static_cast<std::int64_t>(point.samples));
  MOTLEY_ASSIGN(const auto noise, read_noise(folder));
  task.iterations = noise.at(std::log(of.initial)).back().samples;
  const double initial = of.initial;
  task.noise = [noise, initial](double progress, double batch) {
    return initial * std::exp(interpolate(noise, progress, std::log(batch)));
  };
  return task;
}

}  // namespace

Result<void> add_replay_rows(const std::string& data, int seeds, Json& rows) {
  fmt::print("\n{:<10}{:<14}{:>5}{:>12}{:>10}{:>10}{:>9}{:>8}{:>9}{:>7}\n", "task", "policy",
             "seed", "time s", "over best", "steps", "changes", "devices", "last B", "us");
  for (const PolluxTask& of : kPolluxTasks) {
    MOTLEY_ASSIGN(const ReplayedTask task, make_task(data, of));
    for (const char* policy :
         {"even", "adaptdl", "cannikin", "simigrad", "jabas", "motley on all", "motley"})
      for (int seed = 0; seed < seeds; ++seed) {
        const double best = find_clairvoyant(task, static_cast<std::uint64_t>(seed)).seconds;
        const Replayed done = replay(task, policy, static_cast<std::uint64_t>(seed));
        fmt::print("{:<10}{:<14}{:>5}{:>12.1f}{:>10.3f}{:>10}{:>9}{:>8}{:>9.0f}{:>7.1f}\n", of.name,
                   policy, seed, done.seconds, done.seconds / best, done.steps, done.changes,
                   done.device_changes, done.last_batch, 1e6 * done.thought);
        std::fflush(stdout);
        rows.push_back({{"kind", "replay"},
                        {"case", of.name},
                        {"policy", policy},
                        {"seed", seed},
                        {"time_s", done.seconds},
                        {"best_time_s", best},
                        {"steps", done.steps},
                        {"changes", done.changes},
                        {"device_changes", done.device_changes},
                        {"last_batch", done.last_batch},
                        {"thought_s", done.thought}});
      }
  }
  return {};
}

}  // namespace motley::bench
