#include "bench/adapt/replay.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <initializer_list>
#include <utility>

#include "motley/adapt/drawn_noise.h"
#include "motley/base/check.h"
#include "peers/policies/batch_baselines.h"
#include "peers/policies/scaled_options.h"

namespace motley::bench {
namespace {

using adapt::BatchOption;

constexpr double kJitter = 0.02;

/// Returns the mean of the largest of `count` standard normal numbers.
double largest_of(std::size_t count) {
  adapt::DrawnNoise drawn({1}, 0);
  constexpr int kDraws = 2000;
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    double largest = drawn.draw_normal();
    for (std::size_t k = 1; k < count; ++k) largest = std::max(largest, drawn.draw_normal());
    sum += largest / kDraws;
  }
  return sum;
}

double cpu_now() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::unique_ptr<adapt::OptionSource> make_source(const ReplayedTask& task, std::uint64_t seed) {
  std::vector<BatchOption> options = task.options;
  for (BatchOption& option : options)
    for (std::size_t i = 0; i < option.devices.size(); ++i) {
      SplitMix64 random(seed + hash_bytes(option.devices[i].device));
      const double wrong = 0.8 + 0.4 * random.uniform();
      for (adapt::CurvePoint& point : option.devices[i].points) point.seconds *= wrong;
    }
  auto made = peers::ScaledOptions::make(std::move(options));
  MOTLEY_CHECK(made.has_value());
  return std::make_unique<peers::ScaledOptions>(std::move(*made));
}

std::unique_ptr<policy::Policy> make_policy(const ReplayedTask& task, const std::string& name,
                                            std::uint64_t seed) {
  auto source = make_source(task, seed);
  if (name.starts_with("motley"))
    return std::make_unique<adapt::BatchPolicy>(
        adapt::BatchSettings{.initial_batch = task.initial_batch,
                             .bounds = {task.initial_batch, task.most_batch},
                             .rule = task.rule,
                             .objective = {task.objective, {}},
                             .change = Seconds(task.change),
                             .iterations = task.iterations},
        std::move(source));
  const peers::PassSettings settings{.initial_batch = task.initial_batch,
                                     .bounds = {task.least_on_all, task.most_batch},
                                     .rule = task.rule,
                                     .objective = task.objective,
                                     .samples_per_pass = task.samples_per_pass,
                                     .local_batches = task.local_batches};
  if (name == "adaptdl") return std::make_unique<peers::AdaptDlPolicy>(settings, std::move(source));
  if (name == "cannikin")
    return std::make_unique<peers::CannikinPolicy>(settings, std::move(source));
  if (name == "simigrad")
    return std::make_unique<peers::SimiGradPolicy>(settings, std::move(source));
  if (name == "jabas") return std::make_unique<peers::JabasPolicy>(settings, std::move(source));
  MOTLEY_CHECK(name == "even");
  return nullptr;
}

/// The true training: devices, batch, time and progress.
class ReplayedTraining {
 public:
  ReplayedTraining(const ReplayedTask& task, std::uint64_t seed)
      : task_(task), drawn_(std::vector<double>(64, 1.0), seed), option_(&task.options.back()) {
    samples_ =
        peers::split_evenly(option_->devices.size(), static_cast<std::int64_t>(task.least_on_all));
    batch_ = task.least_on_all;
  }

  bool is_over() const { return progress_ >= task_.iterations; }

  policy::StepSeen step() {
    policy::StepSeen seen;
    double ready = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      if (samples_[i] == 0) continue;
      const double work =
          adapt::work_seconds(option_->devices[i], static_cast<double>(samples_[i])) *
          std::max(0.5, 1 + kJitter * drawn_.draw_normal());
      ready = std::max(ready, adapt::ready_seconds(option_->exchange, work));
      seen.global_batch += samples_[i];
      seen.devices.push_back({option_->devices[i].device, samples_[i], {}, work, {}});
    }
    seen.took = Seconds(ready) + option_->exchange.tail;
    batch_ = static_cast<double>(seen.global_batch);
    noise_ = task_.noise(progress_, batch_);
    progress_ += adapt::batch_gain(batch_, task_.initial_batch, noise_);
    pass(seen.took.value);
    seen.step = ++done_.steps;
    seen.at = Seconds(done_.seconds);
    done_.last_batch = batch_;
    return seen;
  }

  policy::NoiseSeen see_noise() {
    std::vector<std::int64_t> pieces;
    for (const std::int64_t samples : samples_)
      if (samples > 0) pieces.push_back(samples);
    if (pieces.size() == 1 && pieces[0] > 1) {
      pieces.push_back(pieces[0] / 2);  // in two micro-batches
      pieces[0] -= pieces[1];
    }
    policy::NoiseSeen seen = drawn_.draw({1, noise_}, pieces);
    seen.step = done_.steps;
    return seen;
  }

  /// Applies a policy's requests from the next step on.
  void apply(const std::vector<policy::Choice>& choices, const std::string& policy) {
    for (const policy::Choice& choice : choices) {
      const auto* batch = std::get_if<policy::UseBatch>(&choice.action);
      if (batch == nullptr || batch->shares.empty()) continue;
      const int index = adapt::find_option(task_.options, batch->shares);
      MOTLEY_CHECK(index >= 0);
      const BatchOption* option = &task_.options[static_cast<std::size_t>(index)];
      const std::vector<std::int64_t> samples = adapt::samples_of(*option, batch->shares);
      if (option == option_ && samples == samples_) continue;
      ++done_.changes;
      done_.device_changes += option != option_;
      if (policy.starts_with("motley")) pass(task_.change);
      if (policy == "jabas" && option != option_) pass(task_.restart);
      option_ = option;
      samples_ = samples;
    }
  }

  double noise() const { return task_.noise(progress_, batch_); }

  /// Changes the option for free.
  void use(const BatchOption& option, std::vector<std::int64_t> samples) {
    done_.changes += option_ != &option || samples != samples_;
    done_.device_changes += option_ != &option;
    option_ = &option;
    samples_ = std::move(samples);
  }

  const Replayed& done() const { return done_; }

 private:
  void pass(double seconds) {
    done_.seconds += seconds;
    done_.cost += seconds / 3600 * option_->per_hour;
  }
  const ReplayedTask& task_;
  adapt::DrawnNoise drawn_;
  const BatchOption* option_;
  std::vector<std::int64_t> samples_;
  double progress_ = 0, batch_ = 0, noise_ = 0;
  Replayed done_;
};

}  // namespace

Replayed replay(const ReplayedTask& task, const std::string& name, std::uint64_t seed) {
  if (name == "motley on all" && task.options.size() > 1) {
    ReplayedTask on_all = task;
    on_all.options = {task.options.back()};
    return replay(on_all, name, seed);
  }
  const std::unique_ptr<policy::Policy> policy = make_policy(task, name, seed);
  ReplayedTraining training(task, seed);
  double thought = 0;
  while (!training.is_over()) {
    const policy::StepSeen step = training.step();
    if (!policy) continue;
    const policy::NoiseSeen noise = training.see_noise();
    for (const policy::Observation& seen :
         std::initializer_list<policy::Observation>{step, noise}) {
      const double start = cpu_now();
      const std::vector<policy::Choice> choices = policy->observe(seen);
      thought += cpu_now() - start;
      training.apply(choices, name);
    }
  }
  Replayed done = training.done();
  done.thought = thought / static_cast<double>(done.steps);
  return done;
}

Replayed find_clairvoyant(const ReplayedTask& task, std::uint64_t seed) {
  std::vector<std::vector<adapt::CurvePoint>> least;
  for (BatchOption option : task.options) {
    const double slower = 1 + kJitter * largest_of(option.devices.size());
    for (adapt::DeviceCurve& curve : option.devices)
      for (adapt::CurvePoint& point : curve.points) point.seconds *= slower;
    least.push_back(adapt::least_step(option));
  }
  ReplayedTraining training(task, seed);
  double chosen_at = -1;
  while (!training.is_over()) {
    // The noise scale also depends on the batch: the next step begins where this one ended.
    const double noise = training.noise();
    if (std::abs(noise / chosen_at - 1) > 0.005) {
      chosen_at = noise;
      double best = 0;
      std::size_t option = 0;
      std::int64_t batch = 0;
      for (std::size_t i = 0; i < least.size(); ++i) {
        const auto choice =
            adapt::choose_batch(least[i], {task.initial_batch, task.most_batch}, noise);
        if (!choice) continue;
        const double price =
            task.objective == adapt::ObjectiveKind::kCost ? task.options[i].per_hour : 1;
        if (choice->rate / price <= best) continue;
        best = choice->rate / price;
        option = i;
        batch = std::llround(choice->batch);
      }
      // Converges on the group that contains its devices.
      for (std::size_t i = 0; i < least.size(); ++i) {
        const BatchOption& of = task.options[option];
        const auto samples = adapt::split_batch(of, batch);
        training.use(of, samples);
        const int group = adapt::find_option(task.options, adapt::shares_of(of, samples));
        if (group == static_cast<int>(option)) break;
        option = static_cast<std::size_t>(group);
      }
    }
    training.step();
  }
  return training.done();
}

}  // namespace motley::bench
