#include "bench/adapt/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "motley/adapt/batch_choice.h"
#include "motley/adapt/drawn_noise.h"
#include "motley/adapt/learning_rate.h"
#include "motley/base/statistics.h"
#include "peers/policies/batch_baselines.h"

namespace motley::bench {
namespace {

struct NoiseCase {
  const char* name;
  std::vector<std::int64_t> sizes;
  std::size_t dimensions;
  double noise;
  bool is_isotropic;
};

struct Moments {
  double sum = 0, squares = 0;
  void add(double x) { sum += x, squares += x * x; }
  double mean(int count) const { return sum / count; }
  double deviation(int count) const {
    return std::sqrt(std::max(0.0, squares / count - mean(count) * mean(count)));
  }
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Draws lines with a cap each, with speeds that differ by up to eight times.
adapt::BatchOption draw_cluster(SplitMix64& random, std::uint64_t devices) {
  adapt::BatchOption option{"drawn", {}, {}, 0};
  option.exchange = {Seconds(0.05 * random.uniform()), Seconds(0.02 * random.uniform()),
                     random.uniform()};
  for (std::uint64_t i = 0; i < devices; ++i) {
    const double slope = 1e-3 * std::exp(2 * random.uniform());
    const double fixed = 0.02 * random.uniform();
    const double cap = std::floor(16 * std::exp(4 * random.uniform()));
    option.devices.push_back({std::to_string(i), {{0, fixed}, {cap, fixed + slope * cap}}});
  }
  return option;
}

struct Timed {
  adapt::BatchChoice choice;
  double seconds = 0;  // median of some calls, from curves to batch
};
Timed choose_timed(const adapt::BatchOption& option, const adapt::BatchBounds& bounds,
                   double noise) {
  Timed timed;
  std::vector<double> seconds;
  for (int i = 0; i < 21; ++i) {
    const double start = seconds_now();
    timed.choice = *adapt::choose_batch(adapt::least_step(option), bounds, noise);
    seconds.push_back(seconds_now() - start);
  }
  timed.seconds = median(seconds);
  return timed;
}

/// Returns the best of a grid, in steps of one sample per second.
double search_grid(const adapt::BatchOption& option, double least, double most, double noise,
                   int points) {
  const adapt::DeviceCurve curve{"", adapt::least_step(option)};
  double best = 0;
  for (int i = 0; i < points; ++i) {
    const double batch = least + (most - least) * i / (points - 1.0);
    best = std::max(best, adapt::batch_gain(batch, 1, noise) / adapt::work_seconds(curve, batch));
  }
  return best;
}

void add_drawn_clusters(Json& rows) {
  SplitMix64 random(2024);
  double worst = -1, slowest = 0;
  for (int i = 0; i < 200; ++i) {
    const std::uint64_t devices = i < 100 ? 2 + random.below(15) : 16;
    const adapt::BatchOption option = draw_cluster(random, devices);
    double most = 0;
    for (const adapt::DeviceCurve& curve : option.devices) most += curve.points.back().samples;
    const double noise = std::exp(2 + 8 * random.uniform());
    const Timed timed = choose_timed(option, {.least = 1}, noise);
    const double regret = search_grid(option, 1, most, noise, 4000) / timed.choice.rate - 1;
    const double of_50 = search_grid(option, 1, most, noise, 50) / timed.choice.rate - 1;
    worst = std::max(worst, regret);
    slowest = std::max(slowest, timed.seconds);
    rows.push_back({{"kind", "batch"},
                    {"case", fmt::format("drawn {}", i)},
                    {"policy", "motley"},
                    {"devices", devices},
                    {"regret", regret},
                    {"grid_50", of_50},
                    {"seconds", timed.seconds}});
  }
  fmt::print(
      "\n200 drawn clusters: a grid of 4,000 is better by at most {:.1e}; slowest choice "
      "{:.1f} us\n",
      worst, 1e6 * slowest);
}

/// Adds sixteen equal devices on four hosts, as in AdaptDL's model without overlap.
void add_peer_cases(Json& rows) {
  SplitMix64 random(7);
  constexpr int kDevices = 16;
  for (int i = 0; i < 20; ++i) {
    const double fixed = 0.01 + 0.1 * random.uniform(), slope = 1e-4 + 1e-3 * random.uniform();
    const double network = 0.01 + 0.1 * random.uniform(), each = 1e-3 * random.uniform();
    const double noise = std::exp(3 + 6 * random.uniform()), initial = 128, cap = 1024;
    adapt::BatchOption option{"equal", {}, {.tail = Seconds(network + each * (kDevices - 2))}, 0};
    for (int k = 0; k < kDevices; ++k)
      option.devices.push_back({std::to_string(k), {{0, fixed}, {cap, fixed + slope * cap}}});
    const Timed timed = choose_timed(option, {.least = initial}, noise);
    rows.push_back(
        {{"kind", "batch"},
         {"case", fmt::format("adaptdl {}", i)},
         {"policy", "motley"},
         {"devices", kDevices},
         {"regret",
          search_grid(option, initial, kDevices * cap, noise, 4000) / timed.choice.rate - 1},
         {"seconds", timed.seconds},
         {"batch", timed.choice.batch},
         // B / T * (noise + B0) / (noise + B), as AdaptDL counts.
         {"goodput", adapt::batch_gain(timed.choice.batch, initial, noise) * initial /
                         timed.choice.step.value},
         {"parameters",
          {{"alpha_c", fixed},
           {"beta_c", slope},
           {"alpha_n", network},
           {"beta_n", each},
           {"noise", noise},
           {"initial_batch", initial},
           {"most_local", cap},
           {"nodes", 4},
           {"replicas", kDevices}}}});
  }
}

}  // namespace

void add_noise_rows(Json& rows) {
  const std::vector<std::int64_t> five = {64, 32, 16, 8, 8};
  const NoiseCase cases[] = {
      {"70,30", {70, 30}, 200, 100, true},
      {"64,32,16,8,8", five, 200, 100, true},
      {"64,32,16,8,8 noisy", five, 200, 5000, true},
      {"4x64,4x32,8x8", {64, 64, 64, 64, 32, 32, 32, 32, 8, 8, 8, 8, 8, 8, 8, 8}, 300, 1000, true},
      {"90,10", {90, 10}, 200, 100, true},
      {"64,32,16,8,8 unlike directions", five, 200, 100, false},
      {"70,30 unlike directions", {70, 30}, 200, 1000, false},
  };
  constexpr int kSteps = 20'000;
  const std::pair<const char*, peers::EstimateNoise> estimators[] = {
      {"motley", adapt::estimate_moments},
      {"adaptdl", peers::estimate_by_mean},
      {"cannikin", peers::estimate_by_matrices}};
  fmt::print("{:<32}{:<10}{:<5}{:>9}{:>9}{:>9}{:>8}\n", "pieces", "estimator", "of", "rel sd",
             "exact", "ratio", "mean");
  for (const NoiseCase& each : cases) {
    std::vector<double> spread;
    double sum = 0, squares = 0, batch = 0;
    for (std::size_t i = 0; i < each.dimensions; ++i) {
      spread.push_back(each.is_isotropic ? 1.0 : 1.0 / static_cast<double>(i + 1));
      sum += spread.back();
      squares += spread.back() * spread.back();
    }
    for (const std::int64_t size : each.sizes) batch += static_cast<double>(size);
    // tr(Sigma^2) / S^2, and 4 G' Sigma G = 4 S / d where G points equally into all dimensions.
    const double trace = squares / (sum * sum), n = static_cast<double>(each.sizes.size());
    const double rho = each.noise / batch, d = static_cast<double>(each.dimensions);
    const double exact[] = {std::sqrt(4 * rho / d + 2 * trace * rho * rho * n / (n - 1)),
                            std::sqrt(2 * trace / (n - 1))};
    adapt::DrawnNoise drawn(spread, 1);
    Moments moments[3][2];
    for (int step = 0; step < kSteps; ++step) {
      const policy::NoiseSeen seen = drawn.draw({1, each.noise}, each.sizes);
      for (int e = 0; e < 3; ++e) {
        const auto of = estimators[e].second(seen);
        moments[e][0].add(of->squared_gradient);
        moments[e][1].add(of->variance / each.noise);
      }
    }
    for (int e = 0; e < 3; ++e)
      for (int quantity = 0; quantity < 2; ++quantity) {
        const Moments& of = moments[e][quantity];
        const double deviation = of.deviation(kSteps);
        fmt::print("{:<32}{:<10}{:<5}{:>9.4f}{:>9.4f}{:>9.3f}{:>8.3f}\n", each.name,
                   estimators[e].first, quantity == 0 ? "G^2" : "S", deviation, exact[quantity],
                   deviation / exact[quantity], of.mean(kSteps));
        rows.push_back({{"kind", "noise"},
                        {"case", fmt::format("{} {}", each.name, quantity == 0 ? "G^2" : "S")},
                        {"policy", estimators[e].first},
                        {"rel_sd", deviation},
                        {"exact_rel_sd", exact[quantity]},
                        {"mean", of.mean(kSteps)}});
      }
    std::fflush(stdout);
  }
}

void add_batch_rows(Json& rows) {
  add_drawn_clusters(rows);
  add_peer_cases(rows);
}

}  // namespace motley::bench
