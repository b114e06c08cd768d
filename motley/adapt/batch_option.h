#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::adapt {

/// A device's own work at a number of samples.
struct CurvePoint {
  double samples = 0;
  double seconds = 0;
  bool operator==(const CurvePoint&) const = default;
};

/// Work by samples: straight between points, nondecreasing in both. Two points at the same samples
/// are a jump (a micro-batch begins). Fewer samples than the first point's take its time; the last
/// point's are the most that the device takes (memory, or the trusted part of the curve). A device
/// without samples takes no part.
struct DeviceCurve {
  std::string device;
  std::vector<CurvePoint> points;
};

/// A group's exchanges in a step. A device that worked t seconds is ready at t + max(0, hidden -
/// share t): exchanges that may overlap take `hidden` and begin when `share` of its work remains.
/// The step ends `tail` after the last device is ready.
struct ExchangeTimes {
  Seconds hidden, tail;
  double share = 0;  ///< 0 to 1
};

/// Devices that may train together, with their curves and price per hour. Each takes a multiple of
/// `unit` samples: equal micro-batches, the same number on all.
struct BatchOption {
  std::string name;
  std::vector<DeviceCurve> devices;
  ExchangeTimes exchange;
  double per_hour = 0;
  std::int64_t unit = 1;
};

/// Usage error `adapt.curve`, with option and device: no points; values that are negative, not
/// finite or decreasing; a last point without samples; a negative exchange; a unit below 1.
Result<void> verify_option(const BatchOption& option);

/// Return the work, and when the device is ready. Require samples >= 0; extend the last segment.
double work_seconds(const DeviceCurve& curve, double samples);
double ready_seconds(const ExchangeTimes& exchange, double work);

/// Returns the step time with these samples per device.
Seconds step_seconds(const BatchOption& option, const std::vector<std::int64_t>& samples);

/// Returns the least step time by samples, over all splits. All devices with samples and below
/// their caps are ready at the same time tau, so the samples are the sum of the curves' inverses at
/// tau (water-filling). Exact, straight between points, same rules as above; begins at 0 samples.
/// Counts fractions of samples regardless of the unit: no split in units is faster. O(m log m) for
/// m points of all curves. Requires a verified option.
std::vector<CurvePoint> least_step(const BatchOption& option);

/// Return the largest batch of at most `samples`, and the smallest of at least, in whole units.
std::int64_t batch_below(const BatchOption& option, double samples);
std::int64_t batch_above(const BatchOption& option, double samples);

/// Splits a batch in whole units with the least step: the straight optimum rounded down, the rest
/// one by one to the device ready first with one more (optimal for a maximum of increasing
/// functions). Empty: more than all devices take, or no whole units. O(n log m + n log n).
///
///   curves of 1 s + 0.1 s and 2 s + 0.2 s a sample, 28 samples: 22 and 6, in units of 4: 24 and 4
std::vector<std::int64_t> split_batch(const BatchOption& option, std::int64_t batch);

/// Returns the most samples, in whole units, that fit in such a step.
std::int64_t samples_within(const BatchOption& option, Seconds step);

}  // namespace motley::adapt
