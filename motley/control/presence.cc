#include "motley/control/presence.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "motley/base/json.h"
#include "motley/policy/json_fields.h"
#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

constexpr const char* kPresenceState = "motley.presence/1";

bool is_before(const Presence::Event& one, const Presence::Event& other) {
  return std::tie(one.at, one.device) < std::tie(other.at, other.device);
}

bool changes_plan(const policy::Choice& choice) {
  return std::holds_alternative<policy::UsePlan>(choice.action) ||
         std::holds_alternative<policy::UseSplit>(choice.action) ||
         std::holds_alternative<policy::UseBatch>(choice.action);
}

}  // namespace

Presence::Presence(const std::vector<simulate::Absence>& absences, std::set<std::string> absent)
    : gone_(std::move(absent)) {
  std::map<std::string, std::vector<std::pair<Seconds, Seconds>>> of_device;
  for (const simulate::Absence& absence : absences)
    of_device[absence.device].emplace_back(absence.from, absence.until);
  for (auto& [device, spans] : of_device) {
    std::sort(spans.begin(), spans.end());
    for (std::size_t i = 0; i < spans.size();) {
      Seconds until = spans[i].second;
      std::size_t last = i + 1;
      for (; last < spans.size() && spans[last].first <= until; ++last)
        until = std::max(until, spans[last].second);
      events_.push_back({simulate::whole_nanoseconds(spans[i].first), device, What::kLoss});
      if (!std::isinf(until.value))
        events_.push_back({simulate::whole_nanoseconds(until), device, What::kArrival});
      i = last;
    }
  }
  std::sort(events_.begin(), events_.end(), is_before);
}

void Presence::add(Event event) {
  const auto rest = events_.begin() + static_cast<std::ptrdiff_t>(next_);
  events_.insert(std::upper_bound(rest, events_.end(), event, is_before), std::move(event));
}

void Presence::leave(const std::string& device) {
  const auto rest = events_.begin() + static_cast<std::ptrdiff_t>(next_);
  events_.erase(std::remove_if(rest, events_.end(),
                               [&](const Event& event) { return event.device == device; }),
                events_.end());
  gone_.insert(device);
}

Presence::Event Presence::take() {
  const Event& event = events_[next_++];
  if (event.what == What::kLoss) gone_.insert(event.device);
  if (event.what == What::kArrival) gone_.erase(event.device);
  return event;
}

const Presence::Event* Presence::find_loss(const std::set<std::string>& devices) const {
  for (std::size_t i = next_; i < events_.size(); ++i)
    if (events_[i].what == What::kLoss && devices.contains(events_[i].device)) return &events_[i];
  return nullptr;
}

std::vector<policy::Choice> PresencePolicy::observe(const policy::Observation& observation) {
  std::vector<policy::Choice> choices;
  if (policy_) choices = policy_->observe(observation);
  const bool decides = std::any_of(choices.begin(), choices.end(), changes_plan);
  if (const auto* loss = std::get_if<policy::LossSeen>(&observation)) {
    gone_.insert(loss->device);
    if (back_ == loss->device) back_.clear();
    if (!decides && around_.uses(loss->device)) split_again(loss->device, "is gone", choices);
  } else if (const auto* notice = std::get_if<policy::NoticeSeen>(&observation)) {
    gone_.insert(notice->device);
    if (!decides && around_.uses(notice->device))
      split_again(notice->device, "will be gone", choices);
  } else if (const auto* arrival = std::get_if<policy::ArrivalSeen>(&observation)) {
    gone_.erase(arrival->device);
    back_ = decides ? "" : arrival->device;
    if (!decides && std::any_of(gone_.begin(), gone_.end(), around_.uses))  // no step would come
      split_again(std::exchange(back_, ""), "is there again", choices);
  } else if (const auto* seen = std::get_if<policy::StepSeen>(&observation)) {
    if (back_.empty() || (seen->devices.empty() && !decides)) return choices;
    const std::string back = std::exchange(back_, "");
    if (!decides) split_again(back, "is there again", choices);
  }
  return choices;
}

void PresencePolicy::split_again(const std::string& device, const char* what,
                                 std::vector<policy::Choice>& choices) const {
  auto action = around_.split(gone_);
  const std::string word = device + " " + what;
  if (action)
    choices.push_back({std::move(*action), std::nullopt, word});
  else
    choices.push_back(
        {policy::Tell{device, std::string(what) +
                                  ", and no other split is possible: " + action.error().message},
         std::nullopt, word});
}

Json PresencePolicy::state() const {
  return {{"schema", kPresenceState},
          {"gone", gone_},
          {"back", back_},
          {"policy", policy_ ? policy_->state() : Json()}};
}

Result<void> PresencePolicy::restore(const Json& state, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, policy::open_state(state, kPresenceState, where));
  MOTLEY_ASSIGN(const std::vector<std::string> gone, object.strings("gone"));
  MOTLEY_ASSIGN(back_, object.string("back"));
  MOTLEY_ASSIGN(const Json* own, object.member("policy"));
  gone_ = {gone.begin(), gone.end()};
  if (policy_) MOTLEY_RETURN_IF_ERROR(policy_->restore(*own, where + ": policy"));
  return object.refuse_unknown();
}

}  // namespace motley::control
