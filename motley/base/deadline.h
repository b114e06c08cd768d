#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "motley/base/units.h"

namespace motley {

/// A point in time on a clock that is never set; by default it never comes.
class Deadline {
 public:
  Deadline() = default;
  /// Returns a deadline `limit` from now; none: never.
  static Deadline after(std::optional<Seconds> limit) {
    Deadline deadline;
    if (limit && limit->value < kForever)
      deadline.at_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                        std::chrono::duration<double>(limit->value));
    return deadline;
  }
  /// Returns the time until then, at least 0; none: forever.
  std::optional<Seconds> left() const {
    if (!at_) return std::nullopt;
    return Seconds(std::max(0.0, std::chrono::duration<double>(*at_ - Clock::now()).count()));
  }
  bool has_passed() const { return at_ && Clock::now() >= *at_; }
  /// Returns milliseconds until then for poll(2), rounded up, at most a day; 0 if it has passed.
  int poll_ms() const {
    using std::chrono::milliseconds;
    constexpr milliseconds kMost = std::chrono::hours(24);
    if (!at_) return static_cast<int>(kMost.count());
    const milliseconds left = std::chrono::ceil<milliseconds>(*at_ - Clock::now());
    return static_cast<int>(std::clamp(left, milliseconds(0), kMost).count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kForever = 1e9;  // s; beyond the range of the clock

  std::optional<Clock::time_point> at_;
};

}  // namespace motley
