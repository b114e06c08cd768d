#include "peers/policies/batch_baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>

namespace motley::peers {
namespace {

double sum_of(const std::vector<std::int64_t>& samples) {
  return static_cast<double>(std::accumulate(samples.begin(), samples.end(), std::int64_t{0}));
}

bool fits(const adapt::BatchOption& option, const std::vector<std::int64_t>& samples) {
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (static_cast<double>(samples[i]) > option.devices[i].points.back().samples) return false;
  return true;
}

/// Splits a batch evenly in units: at least one each, and as many as the bounds require.
std::vector<std::int64_t> even_parts(const adapt::BatchOption& option, std::int64_t batch,
                                     const adapt::BatchBounds& bounds) {
  const auto n = static_cast<double>(option.devices.size());
  const std::int64_t least = std::max(option.unit, adapt::batch_above(option, bounds.least / n));
  return std::vector<std::int64_t>(
      option.devices.size(),
      std::max(least, adapt::batch_below(option, static_cast<double>(batch) / n)));
}

double goodput(const adapt::BatchOption& option, const std::vector<std::int64_t>& samples,
               double noise) {
  return adapt::batch_gain(sum_of(samples), 1, noise) / adapt::step_seconds(option, samples).value;
}

}  // namespace

std::vector<policy::Choice> AdaptDlPolicy::end_pass() {
  const std::optional<double> scale = noise().plain_ratio();
  if (!scale) return {};
  constexpr double kThreshold = 1.05;
  const std::size_t n = all().devices.size();
  double best = kThreshold * goodput(all(), split_evenly(n, batch(), all().unit), *scale);
  std::vector<std::int64_t> taken;
  for (const std::int64_t candidate : candidates()) {
    const std::vector<std::int64_t> even = even_parts(all(), candidate, settings().bounds);
    if (!fits(all(), even) || sum_of(even) > settings().bounds.most) continue;
    const double each = goodput(all(), even, *scale);
    if (each <= best) continue;
    best = each;
    taken = even;
  }
  return use_batch(all(), taken, fmt::format("noise scale {:.4g}", *scale));
}

void CannikinPolicy::see_step(const policy::StepSeen& step) {
  lines_.resize(all().devices.size());
  const std::vector<std::int64_t> samples = adapt::samples_of(all(), adapt::shares_of(step));
  for (std::size_t i = 0; i < lines_.size(); ++i) {
    const auto of_device = [&](const policy::DeviceStep& each) {
      return each.device == all().devices[i].device;
    };
    const auto seen = std::find_if(step.devices.begin(), step.devices.end(), of_device);
    if (samples[i] == 0 || seen == step.devices.end()) continue;
    Line& line = lines_[i];
    if (line.last.samples != static_cast<double>(samples[i])) {
      if (line.last.steps > 0) line.before = line.last;
      line.last = {static_cast<double>(samples[i]), 0, 0};
    }
    line.last.seconds = (line.last.seconds * line.last.steps + seen->end) / (line.last.steps + 1);
    ++line.last.steps;
  }
}

adapt::BatchOption CannikinPolicy::learned() const {
  adapt::BatchOption of = all();
  for (std::size_t i = 0; i < of.devices.size(); ++i) {
    const Measured &one = lines_[i].before, &two = lines_[i].last;
    if (two.steps == 0) continue;  // not seen yet: as given
    double slope = two.seconds / two.samples, fixed = 0;
    if (one.steps > 0 && one.samples != two.samples) {
      slope = std::max(1e-9, (two.seconds - one.seconds) / (two.samples - one.samples));
      fixed = std::max(0.0, two.seconds - slope * two.samples);
    }
    const double most = of.devices[i].points.back().samples;
    of.devices[i].points = {{0, fixed}, {most, fixed + slope * most}};
  }
  return of;
}

std::vector<policy::Choice> CannikinPolicy::end_pass() {
  if (passes() == 1) {
    std::vector<double> speeds;
    for (const Line& line : lines_)
      speeds.push_back(line.last.steps > 0 ? line.last.samples / line.last.seconds : 0);
    const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
    if (sum <= 0) return {};
    // In proportion to samples per second; the remainder goes to the fastest.
    std::vector<std::int64_t> samples;
    for (std::size_t i = 0; i < speeds.size(); ++i) {
      const double most = all().devices[i].points.back().samples;
      const double part = static_cast<double>(batch()) * speeds[i] / sum;
      samples.push_back(adapt::batch_below(all(), std::min(part + 1e-9, most)));
    }
    const auto fastest =
        static_cast<std::size_t>(std::max_element(speeds.begin(), speeds.end()) - speeds.begin());
    samples[fastest] += batch() - static_cast<std::int64_t>(sum_of(samples));
    return use_batch(all(), samples, "in proportion to speed");
  }
  const std::optional<double> scale = noise().plain_ratio();
  if (!scale) return {};
  const adapt::BatchOption lines = learned();
  double best = 0;
  std::vector<std::int64_t> taken;
  for (const std::int64_t candidate : candidates()) {
    const std::vector<std::int64_t> samples = adapt::split_batch(lines, candidate);
    if (samples.empty()) continue;
    const double each = goodput(lines, samples, *scale);
    if (each <= best) continue;
    best = each;
    taken = samples;
  }
  return use_batch(all(), taken, fmt::format("noise scale {:.4g}", *scale));
}

std::vector<double> CannikinPolicy::own_numbers() const {
  std::vector<double> numbers;
  for (const Line& line : lines_)
    for (const Measured& each : {line.before, line.last})
      numbers.insert(numbers.end(), {each.samples, each.seconds, each.steps});
  return numbers;
}

bool CannikinPolicy::take_numbers(const std::vector<double>& numbers) {
  if (numbers.size() % 6 != 0) return false;
  lines_.clear();
  for (std::size_t i = 0; i < numbers.size(); i += 6)
    lines_.push_back({{numbers[i], numbers[i + 1], numbers[i + 2]},
                      {numbers[i + 3], numbers[i + 4], numbers[i + 5]}});
  return true;
}

std::vector<policy::Choice> SimiGradPolicy::see_noise(const policy::NoiseSeen& seen) {
  constexpr std::int64_t kEvery = 100;
  if (seen.step == 0 || seen.step % kEvery != 0) return {};
  const std::optional<adapt::NoiseMoments> moments = adapt::estimate_moments(seen);
  if (!moments) return {};
  double samples = 0;
  for (const policy::NoiseSeen::Piece& piece : seen.pieces)
    samples += static_cast<double>(piece.samples);
  // Of the means of two halves: |G|^2 / (|G|^2 + S / (B / 2)).
  const double similarity =
      moments->squared_gradient / (moments->squared_gradient + 2 * moments->variance / samples);
  if (wanted_ == 0) wanted_ = samples;
  wanted_ = std::clamp(wanted_ * (similarity < settings().similarity ? 1.1 : 0.9),
                       settings().bounds.least, settings().bounds.most);
  return use_batch(option(), split(option(), batch_near(option(), wanted_)),
                   fmt::format("similarity {:.3f}", similarity));
}

bool SimiGradPolicy::take_numbers(const std::vector<double>& numbers) {
  if (numbers.size() != 1) return false;
  wanted_ = numbers[0];
  return true;
}

std::vector<std::int64_t> SimiGradPolicy::split(const adapt::BatchOption& option,
                                                std::int64_t batch) const {
  std::vector<std::int64_t> even = split_evenly(option.devices.size(), batch, option.unit);
  return fits(option, even) ? even : std::vector<std::int64_t>{};
}

std::vector<std::int64_t> JabasPolicy::split(const adapt::BatchOption& option,
                                             std::int64_t batch) const {
  return split_identical(option, batch, settings().local_batches, settings().bounds.most);
}

std::vector<policy::Choice> JabasPolicy::end_pass() {
  const std::int64_t next = wanted() > 0 ? batch_near(option(), wanted()) : batch();
  const adapt::BatchOption* best = nullptr;
  std::vector<std::int64_t> taken;
  double least = 0;
  for (const adapt::BatchOption& each : options()) {
    const std::vector<std::int64_t> samples = split(each, next);
    if (samples.empty()) continue;
    double time = adapt::step_seconds(each, samples).value / sum_of(samples);
    if (settings().objective == adapt::ObjectiveKind::kCost && each.per_hour > 0)
      time *= each.per_hour;
    if (best != nullptr && time >= least) continue;
    best = &each;
    least = time;
    taken = samples;
  }
  if (best == nullptr || best == &option()) return {};
  return use_batch(*best, taken, "fastest devices for a batch of " + std::to_string(next));
}

std::vector<std::int64_t> split_identical(const adapt::BatchOption& option, std::int64_t batch,
                                          const std::vector<std::int64_t>& local_batches,
                                          double most) {
  const std::size_t n = option.devices.size();
  std::vector<std::int64_t> best;
  double fastest = 0;
  for (const std::int64_t local : local_batches) {
    std::vector<std::int64_t> samples(n, 0);
    bool has_room = true;
    for (std::int64_t given = 0; given < batch && has_room;) {
      has_room = false;
      std::size_t pair = 0;
      double soonest = 0;
      for (std::size_t i = 0; i < n; i += 2) {
        double ready = 0;
        bool takes = true;
        for (std::size_t j = i; j < std::min(n, i + 2); ++j) {
          const auto next = static_cast<double>(samples[j] + local);
          takes = takes && next <= option.devices[j].points.back().samples;
          ready = std::max(
              ready,
              adapt::ready_seconds(option.exchange, adapt::work_seconds(option.devices[j], next)));
        }
        if (!takes || (has_room && ready >= soonest)) continue;
        has_room = true;
        pair = i;
        soonest = ready;
      }
      for (std::size_t j = pair; has_room && j < std::min(n, pair + 2); ++j) {
        samples[j] += local;
        given += local;
      }
    }
    if (!has_room || sum_of(samples) > most) continue;
    const double rate = sum_of(samples) / adapt::step_seconds(option, samples).value;
    if (rate <= fastest) continue;
    fastest = rate;
    best = samples;
  }
  return best;
}

}  // namespace motley::peers
