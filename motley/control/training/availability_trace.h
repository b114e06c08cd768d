#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "motley/base/units.h"
#include "motley/simulate/conditions.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// Of simulated time.
inline Seconds to_seconds(trace::Nanoseconds time) {
  return Seconds(static_cast<double>(time) / 1e9);
}

/// Devices as they go away and come back: by the absences of conditions, and as is told meanwhile.
class AvailabilityTrace {
 public:
  /// A notice: the device's next loss is told.
  enum class What { kArrival, kLoss, kNotice };
  struct Event {
    trace::Nanoseconds at = 0;
    std::string device;
    What what = What::kArrival;
    bool operator==(const Event&) const = default;
  };

  /// `absent`: devices that are not there at the beginning.
  explicit AvailabilityTrace(const std::vector<simulate::Absence>& absences,
                             std::set<std::string> absent = {});

  /// Happens behind what has been taken, too.
  void add(Event event);
  /// It goes now, and nothing more is known of it.
  void leave(const std::string& device);

  /// The next event; null: nothing happens any more.
  const Event* next() const { return next_ < events_.size() ? &events_[next_] : nullptr; }
  /// Goes on behind it.
  Event take();
  /// The first loss of one of these devices among the events to come; null: none is lost.
  const Event* find_loss(const std::set<std::string>& devices) const;
  /// Who is not there now.
  const std::set<std::string>& gone() const { return gone_; }

 private:
  std::vector<Event> events_;  // in order of time, then name
  std::size_t next_ = 0;
  std::set<std::string> gone_;
};

}  // namespace motley::control
