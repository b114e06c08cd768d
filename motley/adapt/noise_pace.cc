#include "motley/adapt/noise_pace.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "motley/base/json.h"
#include "motley/base/statistics.h"

namespace motley::adapt {
namespace {

/// Measured steps to wait for after a change.
constexpr std::int64_t kCalm = 32;
/// Measured steps after which |G|^2 that is still not distinguished from zero may never be. From
/// then on measuring may cost this share of training.
constexpr std::int64_t kLong = 256;
constexpr double kInVain = 0.05;
/// Last steps from which the cost of measuring is taken.
constexpr std::size_t kKept = 16;
/// Largest distance of two measured steps, in memories: then four count (noise_scale.h).
constexpr double kWidest = 0.5;

void keep_last(auto& list, const auto& value) {
  if (list.size() == kKept) list.erase(list.begin());
  list.push_back(value);
}

}  // namespace

void NoisePace::see_step(Seconds took, std::int64_t batch) {
  if (took_ > 0) {
    passed_samples_ += static_cast<double>(batch_);
    passed_s_ += took_;
    keep_last(plain_, took_);
  }
  took_ = took.value;
  batch_ = batch;
}

NoisePace::Passed NoisePace::see_noise() {
  const Passed passed{passed_samples_, Seconds(passed_s_ + took_)};
  if (!plain_.empty() && took_ > 0) {
    const double plain = median(plain_);
    keep_last(costs_, std::pair(plain, took_ - plain));
  }
  plain_.clear();
  took_ = passed_samples_ = passed_s_ = 0;
  ++measured_;
  return passed;
}

void NoisePace::begin_anew() {
  every_ = 1;
  measured_ = 0;
  plain_.clear();
  costs_.clear();
}

std::optional<double> NoisePace::cost() const {
  if (costs_.size() < kKept) return std::nullopt;
  std::vector<double> plain, added;
  for (const auto& [without, more] : costs_) {
    plain.push_back(without);
    added.push_back(more);
  }
  return std::max(0.0, median(added)) / median(plain);
}

/// Converts a memory to steps of the present batch.
double NoisePace::steps_in(double memory) const {
  return memory * initial_batch_ / static_cast<double>(batch_);
}

/// Returns 1 also while fewer steps are known than it would keep.
double NoisePace::find_best(const NoiseInterval& noise) const {
  const bool is_known = std::isfinite(noise.high);
  if (measured_ < (is_known ? kCalm : kLong) || batch_ <= 0) return 1;
  const std::optional<double> added = cost();
  if (!added) return 2;
  const double widest = kWidest * steps_in(shortest_memory_);
  if (!is_known) return std::min(*added / kInVain, widest);
  // No batch can follow a scale below one sample.
  const double low = std::max(1.0, noise.low), high = std::max(1.0, noise.high);
  const double deviation =
      std::log(high / low) / (2 * NoiseOptions().deviations);  // of the logarithm
  const double of_one = deviation * deviation * noise.steps;
  const double horizon = steps_in(noise.memory);
  if (of_one == 0) return widest;
  const double best = std::sqrt(32 * horizon * *added / of_one);
  // When already pacing, a third is enough: fewer count for a while, and `every` has powers of two.
  const double wanted = 2 * horizon / best / (every_ > 1 ? 3 : 1);
  return noise.steps >= wanted ? std::min(best, widest) : 1;
}

bool NoisePace::decide(const NoiseInterval& noise) {
  const bool moves = every_ > 1 && noise.memory < memory_;
  memory_ = noise.memory;
  if (moves) {
    every_ = 1;
    measured_ = 0;
    return true;
  }
  const double best = std::log2(std::max(1.0, find_best(noise)));
  // Stays between two powers.
  const bool stays = best > 0 && std::abs(best - std::log2(every_)) < 0.75;
  const std::int64_t before = every_;
  if (!stays) every_ = std::int64_t{1} << std::llround(best);
  while (every_ > 1 && static_cast<double>(every_) > kWidest * steps_in(shortest_memory_))
    every_ /= 2;
  return every_ != before;
}

Json NoisePace::state() const {
  return {{"every", every_},       {"batch", batch_},
          {"took", took_},         {"passed_samples", passed_samples_},
          {"passed_s", passed_s_}, {"plain", plain_},
          {"costs", costs_},       {"measured", measured_},
          {"memory", memory_}};
}

Result<void> NoisePace::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  NoisePace read(initial_batch_, shortest_memory_);
  MOTLEY_ASSIGN(read.every_, object.integer("every"));
  MOTLEY_ASSIGN(read.batch_, object.integer("batch"));
  MOTLEY_ASSIGN(read.took_, object.number("took"));
  MOTLEY_ASSIGN(read.passed_samples_, object.number("passed_samples"));
  MOTLEY_ASSIGN(read.passed_s_, object.number("passed_s"));
  MOTLEY_ASSIGN(const Json* plain, object.member("plain"));
  MOTLEY_ASSIGN(const Json* costs, object.member("costs"));
  MOTLEY_ASSIGN(read.measured_, object.integer("measured"));
  MOTLEY_ASSIGN(read.memory_, object.number("memory"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  const auto is_number = [](const Json& x) { return x.is_number(); };
  const auto is_pair = [&](const Json& x) {
    return x.is_array() && x.size() == 2 && std::all_of(x.begin(), x.end(), is_number);
  };
  if (!plain->is_array() || !std::all_of(plain->begin(), plain->end(), is_number) ||
      !costs->is_array() || !std::all_of(costs->begin(), costs->end(), is_pair) || read.every_ < 1)
    return usage_error("adapt.state", where + ": not a state of how often noise is measured");
  read.plain_ = plain->get<std::vector<double>>();
  read.costs_ = costs->get<std::vector<std::pair<double, double>>>();
  *this = std::move(read);
  return {};
}

}  // namespace motley::adapt
