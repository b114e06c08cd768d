#include "motley/control/training/availability_trace.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

bool is_before(const AvailabilityTrace::Event& one, const AvailabilityTrace::Event& other) {
  return std::tie(one.at, one.device) < std::tie(other.at, other.device);
}

}  // namespace

AvailabilityTrace::AvailabilityTrace(const std::vector<simulate::Absence>& absences,
                                     std::set<std::string> absent)
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

void AvailabilityTrace::add(Event event) {
  const auto rest = events_.begin() + static_cast<std::ptrdiff_t>(next_);
  events_.insert(std::upper_bound(rest, events_.end(), event, is_before), std::move(event));
}

void AvailabilityTrace::leave(const std::string& device) {
  const auto rest = events_.begin() + static_cast<std::ptrdiff_t>(next_);
  events_.erase(std::remove_if(rest, events_.end(),
                               [&](const Event& event) { return event.device == device; }),
                events_.end());
  gone_.insert(device);
}

AvailabilityTrace::Event AvailabilityTrace::take() {
  const Event& event = events_[next_++];
  if (event.what == What::kLoss) gone_.insert(event.device);
  if (event.what == What::kArrival) gone_.erase(event.device);
  return event;
}

const AvailabilityTrace::Event* AvailabilityTrace::find_loss(
    const std::set<std::string>& devices) const {
  for (std::size_t i = next_; i < events_.size(); ++i)
    if (events_[i].what == What::kLoss && devices.contains(events_[i].device)) return &events_[i];
  return nullptr;
}

}  // namespace motley::control
