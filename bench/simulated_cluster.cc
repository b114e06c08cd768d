#include "bench/simulated_cluster.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numbers>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/random.h"
#include "motley/base/statistics.h"
#include "peers/import/csv.h"

namespace motley::bench {
namespace {

double between(SplitMix64& random, double low, double high) {
  return low + (high - low) * random.uniform();
}
double log_between(SplitMix64& random, double low, double high) {
  return std::exp(between(random, std::log(low), std::log(high)));
}

double draw_jitter(SplitMix64& random, double deviation) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  const double normal = radius * std::cos(2 * std::numbers::pi * random.uniform());
  return std::exp(deviation * normal - deviation * deviation / 2);
}

cost::Curve scaled(cost::Curve curve, double factor) {
  for (auto& point : curve.points) point.second *= factor;
  return curve;
}

/// Draws a line with a fixed cost and bends, over samples.
cost::Curve invent_curve(SplitMix64& random, double fixed, double slope, std::int64_t most) {
  cost::Curve curve{{{0, fixed}}};
  double x = 0, seconds = fixed;
  const double end = static_cast<double>(most);
  while (x < end) {
    const double next = x + between(random, 0.1, 0.6) * end;
    seconds += slope * between(random, 0.75, 1.3) * (next - x);
    curve.points.emplace_back(next, seconds);
    x = next;
  }
  return curve;
}

/// Sums two curves at the points of either.
cost::Curve sum_of(const cost::Curve& a, const cost::Curve& b, double share) {
  std::vector<double> at;
  for (const auto& [x, y] : a.points) at.push_back(x);
  for (const auto& [x, y] : b.points) at.push_back(x);
  std::sort(at.begin(), at.end());
  at.erase(std::unique(at.begin(), at.end()), at.end());
  cost::Curve sum;
  for (const double x : at) sum.points.emplace_back(x, a.at(x) + share * b.at(x));
  return sum;
}

/// The ranges from which both kinds of clusters are drawn.
struct Ranges {
  double most_speed, fixed_low, fixed_high, forward_low, forward_high, exchange_low, exchange_high;
  std::uint64_t most_buckets;
  double samples_low, samples_high;  // per device, evenly
};
constexpr Ranges kMade = {8, 0, 0.4, 0.25, 0.45, 0.02, 0.8, 6, 16, 128};
constexpr Ranges kJudged = {5, 0.05, 0.5, 0.2, 0.5, 0.05, 1.0, 10, 24, 200};

double draw_speed(SplitMix64& random, Half half, const Ranges& ranges) {
  if (half == Half::kMade) return log_between(random, 1, ranges.most_speed);
  constexpr double kKinds[] = {1, 1.6, 2.2, 4, 5};
  return kKinds[random.below(5)] * between(random, 0.97, 1.03);
}

double shape_samples(SplitMix64& random, const MeasuredShape& shape) {
  const auto& points = shape.curve.points;
  const double low = points[1].first, high = points.back().first;
  return log_between(random, low * 1.5, std::max(high / 3, low * 1.6));
}

std::pair<cost::Curve, cost::Curve> draw_times(SplitMix64& random, const Ranges& ranges,
                                               const MeasuredShape* shape, double samples) {
  const double forward = between(random, ranges.forward_low, ranges.forward_high);
  const double fixed = between(random, ranges.fixed_low, ranges.fixed_high);
  const auto most = static_cast<std::int64_t>(6 * samples);
  if (shape != nullptr) {
    const cost::Curve extra{{{0, fixed / 3 * shape->curve.at(samples)}}};
    return {sum_of(extra, shape->curve, forward), scaled(shape->curve, 1 - forward)};
  }
  const double slope = (1 - fixed) / samples;
  return {invent_curve(random, fixed * 0.7, slope * forward, most),
          invent_curve(random, fixed * 0.3, slope * (1 - forward), most)};
}

}  // namespace

std::vector<cost::GroupMember> SimulatedCluster::members() const {
  std::vector<cost::GroupMember> members;
  for (std::size_t i = 0; i < curves.size(); ++i)
    members.push_back({&curves[i], limits[i].least, std::min(limits[i].most, batch)});
  return members;
}

Result<std::vector<MeasuredShape>> read_shapes(const std::string& data) {
  std::vector<MeasuredShape> shapes;
  for (const char* task : {"cifar10", "bert", "ncf", "yolov3"}) {
    MOTLEY_ASSIGN(const peers::CsvTable table,
                  peers::CsvTable::read(data + "/pollux/" + std::string(task) + "/placements.csv"));
    std::vector<double> samples, seconds;
    for (std::size_t row = 0; row < table.rows(); ++row) {
      if (table.text(row, 0) != "1") continue;
      MOTLEY_ASSIGN(const double local, table.positive_number(row, 1));
      MOTLEY_ASSIGN(const double step, table.positive_number(row, 2));
      MOTLEY_ASSIGN(const double sync, table.number(row, 3));
      samples.push_back(local);
      seconds.push_back(step - sync);
    }
    make_nondecreasing(seconds);
    MeasuredShape shape{task, {}};
    // Below the first batch as between the first two, but at least 0.3 of it.
    const double slope = (seconds[1] - seconds[0]) / (samples[1] - samples[0]);
    shape.curve.points.emplace_back(0, std::max(1 - slope * samples[0] / seconds[0], 0.3));
    for (std::size_t i = 0; i < samples.size(); ++i)
      shape.curve.points.emplace_back(samples[i], seconds[i] / seconds[0]);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

SimulatedCluster draw_cluster(std::uint64_t seed, Half half, const MeasuredShape* shape) {
  SplitMix64 random(seed * 2 + (half == Half::kMade ? 0 : 1));
  const Ranges& ranges = half == Half::kMade ? kMade : kJudged;
  SimulatedCluster cluster;
  cluster.name = std::string(shape == nullptr ? "invented" : shape->name);
  const std::size_t devices = 2 + random.below(15);
  const double samples = shape == nullptr
                             ? log_between(random, ranges.samples_low, ranges.samples_high)
                             : shape_samples(random, *shape);
  cluster.batch = std::max<std::int64_t>(static_cast<std::int64_t>(devices) * 2,
                                         std::llround(samples * static_cast<double>(devices)));
  const std::size_t buckets = 1 + random.below(ranges.most_buckets);
  std::vector<double> places;  // where buckets are ready in the backward pass
  for (std::size_t k = 0; k + 1 < buckets; ++k) places.push_back(between(random, 0.1, 0.95));
  places.push_back(1);
  std::sort(places.begin(), places.end());
  const bool has_limits = random.below(4) == 0;
  double total = 0;
  for (std::size_t i = 0; i < devices; ++i) {
    const double slowness = 0.2 / draw_speed(random, half, ranges);
    auto [forward, backward] = draw_times(random, ranges, shape, samples);
    forward = scaled(forward, slowness), backward = scaled(backward, slowness);
    cost::StepCurves curves;
    for (const double place : places) {
      curves.ready.push_back(sum_of(forward, backward, place));
      curves.update.push_back(slowness * 0.02 / static_cast<double>(buckets));
    }
    curves.end = sum_of(forward, backward, 1);
    total += curves.end.at(samples);
    cluster.curves.push_back(std::move(curves));
    adapt::DeviceLimits limits{.device = "d" + std::to_string(i)};
    if (has_limits) limits.most = std::llround(samples * between(random, 1.2, 2.5)) + 1;
    cluster.limits.push_back(std::move(limits));
  }
  const double exchange = total / static_cast<double>(devices) *
                          log_between(random, ranges.exchange_low, ranges.exchange_high);
  for (std::size_t k = 0; k < buckets; ++k)
    cluster.exchanges.exchange.push_back(exchange / static_cast<double>(buckets) *
                                         between(random, 0.5, 1.5));
  return cluster;
}

namespace {

/// Mean relative delay of a delayed step.
constexpr double kDelay = 0.2;

/// Simulates a step as seen: each device's times share a jitter, exchanges have their own.
policy::StepSeen see_step(const SimulatedCluster& cluster, const std::vector<std::int64_t>& samples,
                          const std::vector<std::int64_t>& before, const Conditions& conditions,
                          SplitMix64& random) {
  const double jitter = conditions.jitter;
  const auto delay = [&] { return -std::log(1 - random.uniform()); };
  policy::StepSeen seen;
  seen.global_batch = cluster.batch;
  for (const double seconds : cluster.exchanges.exchange)
    seen.exchange.push_back(seconds * draw_jitter(random, jitter));
  seen.blocking = cluster.exchanges.blocking;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    double own = draw_jitter(random, jitter);
    if (conditions.first > 0 && samples[i] != before[i]) own *= 1 + conditions.first * delay();
    if (conditions.late > 0 && random.uniform() < conditions.late) own *= 1 + kDelay * delay();
    if (samples[i] == 0) continue;
    const auto at = static_cast<double>(samples[i]);
    const cost::StepCurves& curves = cluster.curves[i];
    policy::DeviceStep device{.device = cluster.limits[i].device, .samples = samples[i]};
    device.end = curves.end.at(at) * own;
    for (const cost::Curve& ready : curves.ready)
      device.ready.push_back(
          std::min(device.end, ready.at(at) * own * draw_jitter(random, jitter / 4)));
    for (const double update : curves.update) device.update.push_back(update * own);
    seen.devices.push_back(std::move(device));
  }
  return seen;
}

void slow_down(cost::StepCurves& curves) {
  for (cost::Curve& ready : curves.ready) ready = scaled(std::move(ready), 2);
  curves.end = scaled(std::move(curves.end), 2);
  for (double& update : curves.update) update *= 2;
}

std::vector<std::int64_t> samples_of(const std::vector<policy::Share>& shares,
                                     const SimulatedCluster& cluster) {
  std::vector<std::int64_t> samples;
  std::int64_t sum = 0;
  for (const adapt::DeviceLimits& limits : cluster.limits) {
    std::int64_t own = 0;
    for (const policy::Share& share : shares)
      if (share.device == limits.device) own = share.samples;
    MOTLEY_CHECK(own >= limits.least && own <= limits.most);
    samples.push_back(own);
    sum += own;
  }
  MOTLEY_CHECK(sum == cluster.batch);
  return samples;
}

}  // namespace

Course run_policy(policy::Policy& policy, SimulatedCluster cluster, const Conditions& conditions) {
  SplitMix64 random(conditions.seed);
  std::vector<std::int64_t> samples = adapt::even_samples(cluster.limits, cluster.batch);
  std::vector<std::int64_t> before(samples.size(), 0);
  double best =
      cost::find_group_split(cluster.members(), cluster.exchanges, cluster.batch)->seconds;
  std::deque<std::pair<std::int64_t, std::vector<std::int64_t>>> asked;  // first step with it
  Course course;
  for (std::int64_t step = 1; step <= conditions.steps; ++step) {
    if (step == conditions.slow_at) {
      slow_down(cluster.curves[conditions.slow_device < 0
                                   ? random.below(cluster.curves.size())
                                   : static_cast<std::uint64_t>(conditions.slow_device)]);
      best = cost::find_group_split(cluster.members(), cluster.exchanges, cluster.batch)->seconds;
    }
    while (!asked.empty() && asked.front().first <= step) {
      samples = std::move(asked.front().second);
      asked.pop_front();
      ++course.changes;
    }
    course.step = cost::group_step(cluster.members(), cluster.exchanges, samples);
    course.best = best;
    course.excess.push_back(course.step / best - 1);
    policy::StepSeen seen = see_step(cluster, samples, before, conditions, random);
    before = samples;
    seen.step = step;
    seen.took = Seconds(course.step);
    seen.at = Seconds(static_cast<double>(step));
    if (step < conditions.seen_from) continue;
    for (const policy::Choice& choice : policy.observe(seen)) {
      if (const auto* split = std::get_if<policy::UseSplit>(&choice.action))
        asked.emplace_back(step + conditions.lag + 1, samples_of(split->shares, cluster));
      course.told += std::holds_alternative<policy::Tell>(choice.action);
    }
  }
  return course;
}

std::int64_t steps_to(const Course& course, std::int64_t first, double bound) {
  std::int64_t last = first - 1;
  for (auto step = static_cast<std::size_t>(first); step <= course.excess.size(); ++step)
    if (course.excess[step - 1] > bound) last = static_cast<std::int64_t>(step);
  return last - (first - 1);
}

}  // namespace motley::bench
