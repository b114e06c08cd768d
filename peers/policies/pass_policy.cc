#include "peers/policies/pass_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "motley/base/check.h"
#include "motley/policy/json_fields.h"

namespace motley::peers {

using policy::Choice;

std::int64_t batch_near(const adapt::BatchOption& option, double samples) {
  return adapt::batch_below(option, samples + static_cast<double>(option.unit) / 2);
}

std::vector<std::int64_t> split_evenly(std::size_t devices, std::int64_t batch, std::int64_t unit) {
  const auto n = static_cast<std::int64_t>(devices);
  const std::int64_t units = batch / unit;
  std::vector<std::int64_t> samples(devices, units / n * unit);
  for (std::size_t i = 0; i < static_cast<std::size_t>(units % n); ++i) samples[i] += unit;
  return samples;
}

PassPolicy::PassPolicy(PassSettings settings, std::unique_ptr<adapt::OptionSource> source,
                       EstimateNoise estimate)
    : settings_(std::move(settings)),
      source_(std::move(source)),
      // AdaptDL's: 0.999 per step of the initial batch.
      noise_({.initial_batch = settings_.initial_batch,
              .memories = {-1 / std::log(0.999)},
              .estimate = estimate}) {
  MOTLEY_CHECK(!options().empty() && settings_.samples_per_pass > 0);
  for (std::size_t i = 1; i < options().size(); ++i)
    if (options()[i].devices.size() > options()[largest_].devices.size()) largest_ = i;
}

const adapt::BatchOption& PassPolicy::option() const {
  return options()[current_ >= 0 ? static_cast<std::size_t>(current_) : largest_];
}

std::vector<Choice> PassPolicy::observe(const policy::Observation& observation) {
  if (const auto* seen = std::get_if<policy::NoiseSeen>(&observation)) {
    noise_.add(*seen);
    return see_noise(*seen);
  }
  const auto* step = std::get_if<policy::StepSeen>(&observation);
  if (step == nullptr) return {};
  source_->observe(*step);
  current_ = adapt::find_option(options(), adapt::shares_of(*step));
  batch_ = step->global_batch;
  see_step(*step);
  samples_ += batch_;
  if (samples_ < settings_.samples_per_pass) return {};
  samples_ = 0;
  ++passes_;
  return end_pass();
}

std::vector<std::int64_t> PassPolicy::candidates() const {
  constexpr int kCandidates = 50;
  const adapt::BatchBounds& bounds = settings_.bounds;
  std::vector<std::int64_t> batches;
  for (int i = 0; i < kCandidates; ++i)
    batches.push_back(batch_near(
        all(), bounds.least * std::pow(bounds.most / bounds.least, i / (kCandidates - 1.0))));
  return batches;
}

std::vector<Choice> PassPolicy::use_batch(const adapt::BatchOption& option,
                                          const std::vector<std::int64_t>& samples,
                                          std::string why) const {
  std::int64_t batch = 0;
  for (const std::int64_t each : samples) batch += each;
  if (batch == 0) return {};
  const double noise = noise_.plain_ratio().value_or(0);
  const double factor =
      adapt::lr_factor(settings_.rule, static_cast<double>(batch), settings_.initial_batch, noise);
  return {{policy::UseBatch{adapt::shares_of(option, samples), factor},
           adapt::step_seconds(option, samples), std::move(why)}};
}

Json PassPolicy::state() const {
  return {{"policy", name()},        {"version", 1},        {"source", source_->state()},
          {"noise", noise_.state()}, {"current", current_}, {"batch", batch_},
          {"passes", passes_},       {"samples", samples_}, {"own", own_numbers()}};
}

Result<void> PassPolicy::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, policy::open_state_of(state, name(), 1, where));
  MOTLEY_ASSIGN(const Json* source, object.member("source"));
  MOTLEY_ASSIGN(const Json* noise, object.member("noise"));
  MOTLEY_ASSIGN(const std::int64_t current, object.integer("current"));
  MOTLEY_ASSIGN(const std::int64_t batch, object.integer("batch"));
  MOTLEY_ASSIGN(const std::int64_t passes, object.integer("passes"));
  MOTLEY_ASSIGN(const std::int64_t samples, object.integer("samples"));
  MOTLEY_ASSIGN(const Json* own, object.member("own"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  const auto is_number = [](const Json& x) { return x.is_number(); };
  const bool fits = own->is_array() && std::all_of(own->begin(), own->end(), is_number) &&
                    current >= -1 && current < static_cast<std::int64_t>(options().size());
  if (!fits || !take_numbers(own->get<std::vector<double>>()))
    return usage_error("policy.state", where + ": not a state of '" + std::string(name()) + "'");
  MOTLEY_RETURN_IF_ERROR(source_->restore(*source, where + ": source"));
  MOTLEY_RETURN_IF_ERROR(noise_.restore(*noise, where + ": noise"));
  current_ = static_cast<int>(current);
  batch_ = batch;
  passes_ = passes;
  samples_ = samples;
  return {};
}

}  // namespace motley::peers
