#include "peers/policies/deadline_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/json.h"

namespace motley::peers {
namespace {

constexpr const char* kHoldings[] = {"nothing", "spot", "on-demand"};

const char* holding_name(Holding holding) { return kHoldings[static_cast<int>(holding)]; }

Result<Holding> find_holding(const std::string& name, const std::string& where) {
  for (const Holding holding : {Holding::kNothing, Holding::kSpot, Holding::kOnDemand})
    if (name == holding_name(holding)) return holding;
  return usage_error(
      "policy.state",
      fmt::format("{}: key 'holding': found '{}', wanted nothing, spot or on-demand", where, name));
}

std::string why_of(Holding holding, bool is_forced, Seconds slack) {
  if (is_forced)
    return fmt::format(
        "{:.0f} s until the last moment at which on demand alone is in time: on "
        "demand to the end",
        slack.value);
  switch (holding) {
    case Holding::kSpot:
      return fmt::format("spot machines are there, and {:.0f} s could be lost", slack.value);
    case Holding::kOnDemand:
      return fmt::format("on demand, as {:.0f} s are what could be lost", slack.value);
    default:
      return fmt::format("waiting for spot machines: {:.0f} s could be lost", slack.value);
  }
}

}  // namespace

void DeadlinePolicy::see_price(const policy::PriceSeen& seen) {
  const bool is_there = seen.per_hour >= 0;
  if (!is_told_ || is_there != job_state_.is_there) {
    job_state_.is_there = is_there;
    job_state_.since = seen.at;
    learn(job_state_);
    is_told_ = true;
  }
}

std::vector<policy::Choice> DeadlinePolicy::decide() {
  const double left = static_cast<double>(std::max<std::int64_t>(0, job_.steps - done_));
  job_state_.work = job_.step * left;
  job_state_.slack = job_.deadline - job_state_.now - job_state_.work;
  Holding next = Holding::kNothing;
  if (job_state_.work.value > 0) {
    next = is_forced_ ? Holding::kOnDemand : wanted(job_state_);
    if (next == Holding::kSpot && !job_state_.is_there) next = Holding::kNothing;
    if (!elastic::is_safe(job_.terms, job_state_.slack, job_state_.holding, next)) {
      is_forced_ = true;
      next = Holding::kOnDemand;
    }
  }
  std::vector<policy::Choice> choices;
  const auto rent = [&](Holding what, int count) {
    choices.push_back({policy::Rent{job_.kind, job_.zone, what == Holding::kSpot, count},
                       std::nullopt, why_of(next, is_forced_, job_state_.slack)});
  };
  if (next == job_state_.holding) return choices;
  if (job_state_.holding != Holding::kNothing) rent(job_state_.holding, -job_.machines);
  if (next != Holding::kNothing) rent(next, job_.machines);
  job_state_.holding = next;
  return choices;
}

std::vector<policy::Choice> DeadlinePolicy::observe(const policy::Observation& seen) {
  if (const auto* step = std::get_if<policy::StepSeen>(&seen)) {
    done_ = std::max(done_, step->step);
    job_state_.now = std::max(job_state_.now, step->at);
    if (done_ >= job_.steps) return decide();
    return {};
  }
  if (const auto* loss = std::get_if<policy::LossSeen>(&seen)) {
    job_state_.now = std::max(job_state_.now, loss->at);
    if (job_state_.holding == Holding::kSpot) job_state_.holding = Holding::kNothing;
    return {};
  }
  const auto* price = std::get_if<policy::PriceSeen>(&seen);
  if (price == nullptr || price->kind != job_.kind || price->zone != job_.zone) return {};
  job_state_.now = std::max(job_state_.now, price->at);
  see_price(*price);
  return decide();
}

Json DeadlinePolicy::learned() const { return nullptr; }

Result<void> DeadlinePolicy::restore_learned(const Json&, const std::string&) { return {}; }

Json DeadlinePolicy::state() const {
  return {{"policy", name_},
          {"version", 1},
          {"now", job_state_.now.value},
          {"is_there", job_state_.is_there},
          {"since", job_state_.since.value},
          {"holding", holding_name(job_state_.holding)},
          {"done", done_},
          {"is_told", is_told_},
          {"is_forced", is_forced_},
          {"learned", learned()}};
}

Result<void> DeadlinePolicy::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(state, where));
  MOTLEY_ASSIGN(const std::string name, object.string("policy"));
  MOTLEY_ASSIGN(const std::int64_t version, object.integer("version"));
  if (name != name_ || version != 1)
    return usage_error("policy.state", fmt::format("{}: state of policy '{}', version {}; wanted "
                                                   "'{}', version 1",
                                                   where, name, version, name_));
  MOTLEY_ASSIGN(const double now, object.number("now"));
  MOTLEY_ASSIGN(const double since, object.number("since"));
  MOTLEY_ASSIGN(const std::string holding, object.string("holding"));
  JobState job_state{.now = Seconds(now), .since = Seconds(since)};
  MOTLEY_ASSIGN(job_state.is_there, object.boolean("is_there"));
  MOTLEY_ASSIGN(job_state.holding, find_holding(holding, where));
  MOTLEY_ASSIGN(const std::int64_t done, object.integer("done"));
  MOTLEY_ASSIGN(const bool is_told, object.boolean("is_told"));
  MOTLEY_ASSIGN(const bool is_forced, object.boolean("is_forced"));
  MOTLEY_ASSIGN(const Json* learned, object.member("learned"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  MOTLEY_RETURN_IF_ERROR(restore_learned(*learned, where));
  job_state_ = job_state;
  done_ = done;
  is_told_ = is_told;
  is_forced_ = is_forced;
  return {};
}

}  // namespace motley::peers
