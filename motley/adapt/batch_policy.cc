#include "motley/adapt/batch_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/json.h"
#include "motley/policy/json_fields.h"

namespace motley::adapt {
namespace {

using policy::Choice;

/// Steps after which a request that has not begun is given up.
constexpr std::int64_t kBatchPatience = 200;

std::int64_t batch_of(const std::vector<policy::Share>& shares) {
  std::int64_t batch = 0;
  for (const policy::Share& share : shares) batch += share.samples;
  return batch;
}

bool is_before(const policy::Share& a, const policy::Share& b) { return a.device < b.device; }

Json write_shares(const std::vector<policy::Share>& shares) {
  Json list = Json::array();
  for (const policy::Share& share : shares) list.push_back({share.device, share.samples});
  return list;
}

Result<std::vector<policy::Share>> read_shares(JsonObject& object, const std::string& key) {
  MOTLEY_ASSIGN(const Json* list, object.member(key));
  std::vector<policy::Share> shares;
  const auto fault = [&] {
    return usage_error("adapt.state",
                       object.where() + ": key '" + key + "': wanted pairs of device and samples");
  };
  if (!list->is_array()) return fault();
  for (const Json& pair : *list) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() ||
        !pair[1].is_number_integer())
      return fault();
    shares.push_back({pair[0].get<std::string>(), pair[1].get<std::int64_t>()});
  }
  return shares;
}

}  // namespace

BatchPolicy::BatchPolicy(BatchSettings settings, std::unique_ptr<OptionSource> source)
    : settings_(std::move(settings)),
      source_(std::move(source)),
      noise_({.initial_batch = settings_.initial_batch, .memories = settings_.memories}),
      pace_(settings_.initial_batch, settings_.memories.front()) {
  MOTLEY_CHECK(settings_.most_lr_change > 1);
  MOTLEY_CHECK(settings_.objective.kind != ObjectiveKind::kDeadline || settings_.iterations > 0);
}

std::vector<Choice> BatchPolicy::observe(const policy::Observation& observation) {
  if (const auto* step = std::get_if<policy::StepSeen>(&observation)) return see_step(*step);
  if (const auto* noise = std::get_if<policy::NoiseSeen>(&observation)) return see_noise(*noise);
  if (const auto* notice = std::get_if<policy::NoticeSeen>(&observation))
    return leave(notice->device);
  if (const auto* loss = std::get_if<policy::LossSeen>(&observation)) return leave(loss->device);
  if (const auto* arrival = std::get_if<policy::ArrivalSeen>(&observation))
    source_->set_present(arrival->device, true);
  if (std::holds_alternative<policy::RefusalSeen>(observation)) lr_factor_ = lr_before_;
  return {};
}

std::vector<Choice> BatchPolicy::see_step(const policy::StepSeen& step) {
  source_->observe(step);
  at_ = step.at;
  took_ = step.took;
  shares_ = shares_of(step);
  std::sort(shares_.begin(), shares_.end(), is_before);
  if (const std::optional<NoiseInterval> noise = noise_.interval(); noise && !shares_.empty())
    progress_ += batch_gain(static_cast<double>(batch_of(shares_)), settings_.initial_batch,
                            noise->estimate);
  pace_.see_step(step.took, step.global_batch);
  std::vector<Choice> choices;
  if (!shares_.empty() && shares_ != known_) {
    if (!known_.empty()) measure_each(choices, "another split or batch");
    known_ = shares_;
  }
  if (pending_.empty()) return choices;
  // Where others changed the plan, the earlier request is void.
  const bool is_void = !shares_.empty() && shares_ != pending_ && shares_ != replaced_;
  if (is_void) lr_factor_ = lr_before_;
  if (is_void || shares_ == pending_ || ++waited_ > kBatchPatience) pending_.clear();
  return choices;
}

std::vector<Choice> BatchPolicy::see_noise(const policy::NoiseSeen& seen) {
  const NoisePace::Passed passed = pace_.see_noise();
  noise_.add(seen, passed.samples);
  const std::optional<NoiseInterval> noise = noise_.interval();
  if (!noise || !pending_.empty() || shares_.empty()) return {};
  std::vector<Choice> choices = judge_noise(*noise, passed.time);
  return choices.empty() ? follow_pace(*noise) : choices;
}

/// `since`: time without a change since the last judgement.
std::vector<Choice> BatchPolicy::judge_noise(const NoiseInterval& noise, Seconds since) {
  refresh();
  const std::optional<Target> current = now();
  if (!current) return {};
  std::optional<Target> target;
  double sure = 0;
  for (const double scale : {noise.estimate, noise.low, noise.high}) {
    const std::optional<Target> each = find_best(scale, settings_.bounds);
    if (!each) continue;
    const double saving =
        std::min(saved(*current, *each, noise.low), saved(*current, *each, noise.high));
    if (saving <= sure) continue;
    sure = saving;
    target = each;
  }
  if (!target) return follow_rate(noise);
  regret_ += since.value * sure;
  if (regret_ < settings_.change.value) return follow_rate(noise);
  if (settings_.iterations > 0) {
    const double rate =
        batch_gain(static_cast<double>(current->batch), settings_.initial_batch, noise.estimate) /
        current->step.value;
    const double left = std::max(0.0, settings_.iterations - progress_) / rate;
    if (left * saved(*current, *target, noise.estimate) < settings_.change.value) return {};
  }
  return change_to(*target, noise,
                   fmt::format("noise scale {:.4g} ({:.4g} to {:.4g}): saves at least {:.1f} %",
                               noise.estimate, noise.low, noise.high, 100 * sure));
}

std::vector<Choice> BatchPolicy::leave(const std::string& device) {
  source_->set_present(device, false);
  const auto is_it = [&](const policy::Share& share) { return share.device == device; };
  const bool takes_part = std::any_of(shares_.begin(), shares_.end(), is_it) ||
                          std::any_of(pending_.begin(), pending_.end(), is_it);
  if (!takes_part) return {};
  refresh();
  const std::optional<NoiseInterval> noise = noise_.interval();
  std::optional<Target> target;
  if (noise) target = find_best(noise->estimate, settings_.bounds);
  if (!target) {
    // Unknown noise, or too little memory left: the batch nearest to the present one that fits.
    constexpr double kEndless = std::numeric_limits<double>::infinity();
    target = find_best(kEndless, {1, static_cast<double>(batch_of(shares_))});
  }
  if (!target) return {};
  return change_to(*target, noise.value_or(NoiseInterval{}), "device '" + device + "' leaves");
}

std::vector<Choice> BatchPolicy::change_to(const Target& target, const NoiseInterval& noise,
                                           std::string why) {
  const BatchOption& option = source_->options()[static_cast<std::size_t>(target.option)];
  const std::vector<std::int64_t> samples = split_batch(option, target.batch);
  if (samples.empty()) return {};
  lr_before_ = lr_factor_;
  lr_factor_ = bounded_factor(lr_factor_,
                              lr_factor(settings_.rule, static_cast<double>(target.batch),
                                        settings_.initial_batch, noise.estimate),
                              settings_.most_lr_change);
  pending_ = shares_of(option, samples);
  policy::UseBatch action{pending_, lr_factor_};
  std::sort(pending_.begin(), pending_.end(), is_before);
  replaced_ = shares_;
  waited_ = 0;
  regret_ = 0;
  if (pending_ == shares_) pending_.clear();
  std::vector<Choice> choices = {
      {std::move(action), step_seconds(option, samples), option.name + ": " + std::move(why)}};
  measure_each(choices, "another split or batch");
  return choices;
}

std::vector<Choice> BatchPolicy::follow_pace(const NoiseInterval& noise) {
  if (!pace_.decide(noise)) return {};
  const std::optional<double> cost = pace_.cost();
  const std::string why =
      !cost ? "to see what it adds to a step"
            : fmt::format("it adds {:.1f} % to a step, noise scale {:.4g} ({:.4g} to {:.4g})",
                          100 * *cost, noise.estimate, noise.low, noise.high);
  return {{policy::MeasureNoise{pace_.every()}, std::nullopt, why}};
}

void BatchPolicy::measure_each(std::vector<Choice>& choices, const std::string& why) {
  const bool is_other = pace_.every() != 1;
  pace_.begin_anew();
  if (is_other) choices.push_back({policy::MeasureNoise{1}, std::nullopt, why});
}

std::vector<Choice> BatchPolicy::follow_rate(const NoiseInterval& noise) {
  const auto batch = static_cast<double>(batch_of(shares_));
  const auto wanted = [&](double scale) {
    return lr_factor(settings_.rule, batch, settings_.initial_batch, scale);
  };
  constexpr double kEqual = 1e-9;
  // Below the initial batch, the factor falls with the noise.
  const auto [least, most] = std::minmax({wanted(noise.low), wanted(noise.high)});
  if (lr_factor_ >= least * (1 - kEqual) && lr_factor_ <= most * (1 + kEqual)) return {};
  lr_before_ = lr_factor_;
  lr_factor_ = bounded_factor(lr_factor_, wanted(noise.estimate), settings_.most_lr_change);
  std::vector<Choice> choices = {{policy::UseBatch{shares_, lr_factor_}, std::nullopt,
                                  fmt::format("learning rate by {} at noise scale {:.4g}",
                                              rule_name(settings_.rule), noise.estimate)}};
  measure_each(choices, "another learning rate");
  return choices;
}

BatchPolicy::Worth BatchPolicy::judge(int option, double batch, Seconds step, double noise) const {
  const double rate = batch_gain(batch, settings_.initial_batch, noise) / step.value;
  if (settings_.objective.kind == ObjectiveKind::kTime || option < 0) return {true, rate};
  const double price = source_->options()[static_cast<std::size_t>(option)].per_hour;
  const double cheap = price > 0 ? rate / price : rate;
  if (settings_.objective.kind == ObjectiveKind::kCost) return {true, cheap};
  const double left = (settings_.objective.deadline - at_).value;
  const bool is_in_time = rate * left >= settings_.iterations - progress_;
  return {is_in_time, is_in_time ? cheap : rate};
}

BatchPolicy::Worth BatchPolicy::judge(const Target& target, double noise) const {
  return judge(target.option, static_cast<double>(target.batch), target.step, noise);
}

bool BatchPolicy::is_better(const Worth& one, const Worth& other) {
  return one.is_in_time != other.is_in_time ? one.is_in_time : one.rate > other.rate;
}

double BatchPolicy::saved(const Target& from, const Target& to, double noise) const {
  const Worth before = judge(from, noise), after = judge(to, noise);
  if (before.is_in_time != after.is_in_time) return after.is_in_time ? 1 : -1;
  return 1 - before.rate / after.rate;
}

BatchPolicy::Target BatchPolicy::make_target(std::size_t option, std::int64_t batch) {
  const auto [place, is_new] = targets_.insert({{option, batch}, Target{}});
  if (!is_new) return place->second;
  const std::vector<BatchOption>& options = source_->options();
  for (;;) {
    const BatchOption& of = options[option];
    const std::vector<std::int64_t> samples = split_batch(of, batch);
    // Where the split leaves devices without samples, a smaller group may suffice.
    const auto group = static_cast<std::size_t>(find_option(options, shares_of(of, samples)));
    if (options[group].devices.size() == of.devices.size())
      return place->second = {static_cast<int>(option), batch, step_seconds(of, samples)};
    option = group;
  }
}

std::optional<BatchPolicy::Target> BatchPolicy::find_best(double noise, const BatchBounds& bounds) {
  // First in fractions of samples, a bound for whole units. Then the candidates that may win, best
  // first, in whole units: the most samples of the same step, and of the next longer one.
  const std::vector<BatchOption>& options = source_->options();
  std::vector<std::pair<Target, double>> candidates;
  for (std::size_t i = 0; i < options.size(); ++i) {
    if (const std::optional<BatchChoice> choice = choose_batch(least_[i], bounds, noise))
      candidates.push_back({{static_cast<int>(i), 0, choice->step}, choice->batch});
  }
  const auto worth = [&](const std::pair<Target, double>& of) {
    return judge(of.first.option, of.second, of.first.step, noise);
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const auto& a, const auto& b) { return is_better(worth(a), worth(b)); });
  std::optional<Target> best;
  for (const auto& [bound, batch] : candidates) {
    if (best && !is_better(worth({bound, batch}), judge(*best, noise))) break;
    const auto index = static_cast<std::size_t>(bound.option);
    const BatchOption& option = options[index];
    const std::int64_t most =
        batch_below(option, std::min(bounds.most, static_cast<double>(rooms_[index])));
    const std::int64_t least = batch_above(option, std::max(1.0, bounds.least));
    const std::int64_t within = std::min(most, samples_within(option, bound.step));
    const std::int64_t above = std::min(most, batch_above(option, batch));
    for (const std::int64_t from : {within, above}) {
      if (from < least) continue;
      const std::int64_t filled =
          std::min(most, samples_within(option, make_target(index, from).step));
      const Target each = make_target(index, std::max(from, filled));
      if (!best || is_better(judge(each, noise), judge(*best, noise))) best = each;
    }
  }
  return best;
}

std::optional<BatchPolicy::Target> BatchPolicy::now() const {
  const int index = find_option(source_->options(), shares_);
  if (index < 0) {
    // A group that is not an option: as the step went.
    return took_.value > 0 && settings_.objective.kind == ObjectiveKind::kTime
               ? std::optional(Target{-1, batch_of(shares_), took_})
               : std::nullopt;
  }
  const BatchOption& option = source_->options()[static_cast<std::size_t>(index)];
  return Target{index, batch_of(shares_), step_seconds(option, samples_of(option, shares_))};
}

void BatchPolicy::refresh() {
  if (least_version_ == source_->version()) return;
  least_.clear();
  targets_.clear();
  rooms_.clear();
  for (const BatchOption& option : source_->options()) {
    least_.push_back(least_step(option));
    rooms_.push_back(samples_within(option, Seconds(std::numeric_limits<double>::infinity())));
  }
  least_version_ = source_->version();
}

Json BatchPolicy::state() const {
  return {{"policy", name()},
          {"version", 3},
          {"source", source_->state()},
          {"noise", noise_.state()},
          {"pace", pace_.state()},
          {"known", write_shares(known_)},
          {"shares", write_shares(shares_)},
          {"pending", write_shares(pending_)},
          {"replaced", write_shares(replaced_)},
          {"waited", waited_},
          {"at", at_.value},
          {"took", took_.value},
          {"regret", regret_},
          {"lr_factor", lr_factor_},
          {"lr_before", lr_before_},
          {"progress", progress_}};
}

Result<void> BatchPolicy::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, policy::open_state_of(state, name(), 3, where));
  MOTLEY_ASSIGN(const Json* source, object.member("source"));
  MOTLEY_ASSIGN(const Json* noise, object.member("noise"));
  MOTLEY_ASSIGN(const Json* pace, object.member("pace"));
  MOTLEY_ASSIGN(auto known, read_shares(object, "known"));
  MOTLEY_ASSIGN(auto shares, read_shares(object, "shares"));
  MOTLEY_ASSIGN(auto pending, read_shares(object, "pending"));
  MOTLEY_ASSIGN(auto replaced, read_shares(object, "replaced"));
  MOTLEY_ASSIGN(const std::int64_t waited, object.integer("waited"));
  MOTLEY_ASSIGN(const double at, object.number("at"));
  MOTLEY_ASSIGN(const double took, object.number("took"));
  MOTLEY_ASSIGN(const double regret, object.number("regret"));
  MOTLEY_ASSIGN(const double lr_factor, object.number("lr_factor"));
  MOTLEY_ASSIGN(const double lr_before, object.number("lr_before"));
  MOTLEY_ASSIGN(const double progress, object.number("progress"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  MOTLEY_RETURN_IF_ERROR(source_->restore(*source, where + ": source"));
  MOTLEY_RETURN_IF_ERROR(noise_.restore(*noise, where + ": noise"));
  MOTLEY_RETURN_IF_ERROR(pace_.restore(*pace, where + ": pace"));
  known_ = std::move(known);
  shares_ = std::move(shares);
  pending_ = std::move(pending);
  replaced_ = std::move(replaced);
  waited_ = waited;
  at_ = Seconds(at);
  took_ = Seconds(took);
  regret_ = regret;
  lr_factor_ = lr_factor;
  lr_before_ = lr_before;
  progress_ = progress;
  least_version_.reset();
  return {};
}

}  // namespace motley::adapt
