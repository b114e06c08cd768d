#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "motley/base/units.h"
#include "motley/simulate/conditions.h"
#include "motley/trace/trace.h"

namespace motley::control {

inline Seconds to_seconds(trace::Nanoseconds time) {
  return Seconds(static_cast<double>(time) / 1e9);
}

/// The losses and arrivals of devices, from conditions and from events added meanwhile.
class AvailabilityTrace {
 public:
  /// kNotice: the device's next loss is announced.
  enum class What { kArrival, kLoss, kNotice };
  struct Event {
    trace::Nanoseconds at = 0;
    std::string device;
    What what = What::kArrival;
    bool operator==(const Event&) const = default;
  };

  /// `absent`: devices that are not there at first.
  explicit AvailabilityTrace(const std::vector<simulate::Absence>& absences,
                             std::set<std::string> absent = {});

  /// Adds an event, which comes after those already taken.
  void add(Event event);
  /// The device leaves now; its further events are dropped.
  void leave(const std::string& device);

  /// The next event; null: there are no more.
  const Event* next() const { return next_ < events_.size() ? &events_[next_] : nullptr; }
  Event take();
  /// The next loss of one of these devices; null: none is lost.
  const Event* find_loss(const std::set<std::string>& devices) const;
  const std::set<std::string>& gone() const { return gone_; }

 private:
  std::vector<Event> events_;  // by time, then name
  std::size_t next_ = 0;
  std::set<std::string> gone_;
};

}  // namespace motley::control
