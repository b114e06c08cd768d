#include "motley/policy/plan_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/policy/json_fields.h"

namespace motley::policy {
namespace {

constexpr const char* kTrialsSchema = "motley.plan-trials/1";

/// Returns the scatter of step times: the median distance from their median.
double spread_of(const std::vector<double>& steps) { return find_scatter(steps).deviation; }

}  // namespace

PlanTrials::PlanTrials(std::vector<TriedPlan> plans, const TrialOptions& options)
    : plans_(std::move(plans)),
      options_(options),
      steps_(plans_.size()),
      is_refused_(plans_.size()),
      patience_(options.watching) {}

std::optional<Seconds> PlanTrials::measured(int plan) const {
  const std::vector<double>& steps = steps_[static_cast<std::size_t>(plan)];
  if (steps.empty()) return std::nullopt;
  return Seconds(median(steps));
}

std::string PlanTrials::describe(int plan) const {
  return plans_[static_cast<std::size_t>(plan)].label;
}

std::vector<Choice> PlanTrials::observe(const Observation& observation) {
  if (const auto* seen = std::get_if<StepSeen>(&observation)) return observe_step(*seen);
  if (const auto* seen = std::get_if<RefusalSeen>(&observation)) return observe_refusal(*seen);
  return {};
}

std::vector<Choice> PlanTrials::observe_step(const StepSeen& seen) {
  if (seen.plan != wanted_) return {};  // the next one is being prepared
  if (settled_ < options_.settling) {
    ++settled_;
    return {};
  }
  if (is_decided_) return watch(seen);
  std::vector<double>& own = steps_[static_cast<std::size_t>(wanted_)];
  own.push_back(seen.took.value);
  const auto fastest = find_fastest();
  const bool is_closer = own.size() > static_cast<std::size_t>(options_.looking);
  const bool is_hopeless = !is_closer && fastest && *fastest != wanted_ &&
                           seen.took.value > options_.hopeless * measured(*fastest)->value;
  const auto enough = static_cast<std::size_t>(is_closer ? options_.closer : options_.looking);
  return is_hopeless || own.size() >= enough ? look_further() : std::vector<Choice>();
}

std::vector<Choice> PlanTrials::observe_refusal(const RefusalSeen& seen) {
  if (seen.plan < 0 || seen.plan >= static_cast<int>(plans_.size())) return {};
  is_refused_[static_cast<std::size_t>(seen.plan)] = true;
  steps_[static_cast<std::size_t>(seen.plan)].clear();
  if (seen.plan != wanted_) return {};
  wanted_ = seen.runs;
  return look_further();
}

/// Chooses the next untried plan, or one close to the fastest, or the fastest for good.
std::vector<Choice> PlanTrials::look_further() {
  if (const auto next = find_untried()) return use(*next, "it was not tried yet");
  const auto fastest = find_fastest();
  if (!fastest) return {};
  if (const auto close = find_close(*fastest))
    return use(*close, fmt::format("a closer look: {} takes about as long", describe(*fastest)));
  is_decided_ = true;
  const int taken = find_likeliest();
  std::vector<std::string> others;
  for (int i = 0; i < static_cast<int>(plans_.size()); ++i)
    if (i != taken && measured(i))
      others.push_back(fmt::format("{} {}", describe(i), format_seconds(*measured(i))));
  if (others.empty()) return use(taken, "no other can be had");
  return use(taken, (taken == *fastest ? "the fastest of those tried: "
                                       : "as quick as any tried, and predicted to be quicker: ") +
                        join(others, ", "));
}

/// Finds the fastest plan by measurement and prediction. Requires that some plan was measured.
int PlanTrials::find_likeliest() const {
  const bool is_predicted = std::all_of(plans_.begin(), plans_.end(), [](const TriedPlan& plan) {
    return plan.predicted && plan.predicted->value > 0;
  });
  std::optional<int> likeliest;
  double least = 0;
  for (int i = 0; i < static_cast<int>(plans_.size()); ++i) {
    const auto own = measured(i);
    if (!own) continue;
    double seconds = std::log(own->value);
    if (is_predicted)
      seconds += options_.belief * std::log(plans_[static_cast<std::size_t>(i)].predicted->value);
    if (likeliest && seconds >= least) continue;
    likeliest = i;
    least = seconds;
  }
  return *likeliest;
}

std::vector<Choice> PlanTrials::use(int plan, std::string why) {
  std::optional<Seconds> expected = measured(plan);
  if (!expected) expected = plans_[static_cast<std::size_t>(plan)].predicted;
  // The plan settles again, unless it runs already.
  if (plan != std::exchange(wanted_, plan)) settled_ = 0;
  recent_.clear();
  return {{UsePlan{plan}, expected, std::move(why)}};
}

std::optional<int> PlanTrials::find_untried() const {
  for (std::size_t i = 0; i < plans_.size(); ++i)
    if (steps_[i].empty() && !is_refused_[i]) return static_cast<int>(i);
  return std::nullopt;
}

std::optional<int> PlanTrials::find_fastest() const {
  std::optional<int> fastest;
  for (int i = 0; i < static_cast<int>(plans_.size()); ++i)
    if (const auto own = measured(i); own && (!fastest || *own < *measured(*fastest))) fastest = i;
  return fastest;
}

/// Finds a plan that may be the fastest and was not inspected closely. The fastest itself counts
/// where another is near, since it may be the fastest by chance.
std::optional<int> PlanTrials::find_close(int fastest) const {
  const auto& best = steps_[static_cast<std::size_t>(fastest)];
  const auto wants_more = [&](const std::vector<double>& own) {
    return static_cast<int>(own.size()) < options_.closer;
  };
  bool is_alone = true;
  for (int i = 0; i < static_cast<int>(plans_.size()); ++i) {
    const auto& own = steps_[static_cast<std::size_t>(i)];
    if (i == fastest || own.empty() || median(own) > (1 + options_.near) * median(best)) continue;
    is_alone = false;
    if (wants_more(own)) return i;
  }
  return !is_alone && wants_more(best) ? std::optional(fastest) : std::nullopt;
}

/// Checks, after the decision, whether it is still right.
std::vector<Choice> PlanTrials::watch(const StepSeen& seen) {
  recent_.push_back(seen.took.value);
  if (static_cast<std::int64_t>(recent_.size()) < patience_) return {};
  const auto begin = recent_.end() - options_.watching;
  const std::vector<double> last(begin, recent_.end());
  const double now = median(last), spread = spread_of(last);
  std::vector<double>& own = steps_[static_cast<std::size_t>(wanted_)];
  own = last;
  recent_.clear();
  for (int i = 0; i < static_cast<int>(plans_.size()); ++i) {
    auto& other = steps_[static_cast<std::size_t>(i)];
    if (i == wanted_ || other.empty()) continue;
    if (now - median(other) <= 2 * (spread + spread_of(other)) || now < 1.1 * median(other))
      continue;
    patience_ *= 2;
    is_decided_ = false;
    const std::string why =
        fmt::format("steps take {} now, it took {}", format_seconds(Seconds(now)),
                    format_seconds(Seconds(median(other))));
    other.clear();
    return use(i, why);
  }
  return {};
}

Json PlanTrials::state() const {
  std::vector<bool> refused = is_refused_;
  return {{"schema", kTrialsSchema}, {"wanted", wanted_},
          {"settled", settled_},     {"is_decided", is_decided_},
          {"steps", steps_},         {"refused", std::vector<int>(refused.begin(), refused.end())},
          {"recent", recent_},       {"patience", patience_}};
}

Result<void> PlanTrials::restore(const Json& state, const std::string& where) {
  const auto fault = [&](const std::string& what) {
    return usage_error("policy.state",
                       where + ": is no state of these plans: " + what +
                           "; run with --resume never, or with the plans it was of");
  };
  if (!state.is_object() || state.value("schema", "") != kTrialsSchema)
    return fault(fmt::format("found schema '{}', wanted '{}'",
                             state.is_object() ? state.value("schema", "") : "", kTrialsSchema));
  try {
    PlanTrials read(plans_, options_);
    read.wanted_ = state.at("wanted").get<int>();
    read.settled_ = state.at("settled").get<int>();
    read.is_decided_ = state.at("is_decided").get<bool>();
    read.steps_ = state.at("steps").get<std::vector<std::vector<double>>>();
    const auto refused = state.at("refused").get<std::vector<int>>();
    read.is_refused_.assign(refused.begin(), refused.end());
    read.recent_ = state.at("recent").get<std::vector<double>>();
    read.patience_ = state.at("patience").get<std::int64_t>();
    if (read.steps_.size() != plans_.size() || read.is_refused_.size() != plans_.size())
      return fault(fmt::format("it has {} plans, wanted {}", read.steps_.size(), plans_.size()));
    if (read.wanted_ < 0 || read.wanted_ >= static_cast<int>(plans_.size()))
      return fault(fmt::format("plan {} of {}", read.wanted_, plans_.size()));
    *this = std::move(read);
    return {};
  } catch (const Json::exception& error) {
    return fault(error.what());
  }
}

}  // namespace motley::policy
