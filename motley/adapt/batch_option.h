#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::adapt {

/// Seconds of a device's own work at a number of samples.
struct CurvePoint {
  double samples = 0;
  double seconds = 0;
  bool operator==(const CurvePoint&) const = default;
};

/// Work against samples: straight between points, in both neither falls from point to point. Two
/// points at the same samples are a jump (one more micro-batch begins). Fewer samples than the
/// first point's take as long as it; the last point's samples are the most that the device takes
/// (its memory, or as far as the curve is trusted). A device without samples takes no part.
struct DeviceCurve {
  std::string device;
  std::vector<CurvePoint> points;
};

/// What a group of devices exchanges in a step. A device that worked t seconds is ready at
/// t + max(0, hidden - share t): the exchanges that may overlap take `hidden`, and begin when
/// `share` of its work is still ahead. The step ends `tail` after the last device is ready.
struct ExchangeTimes {
  Seconds hidden, tail;
  double share = 0;  ///< 0 to 1
};

/// Devices that may train together, with their curves, and what an hour of all of them costs. Each
/// takes a multiple of `unit` samples: as many micro-batches, all alike.
struct BatchOption {
  std::string name;
  std::vector<DeviceCurve> devices;
  ExchangeTimes exchange;
  double per_hour = 0;
  std::int64_t unit = 1;
};

/// Usage error `adapt.curve`, which names option and device: no points, values that are negative,
/// not finite or fall, a last point without samples, an exchange that is negative, a unit below 1.
Result<void> verify_option(const BatchOption& option);

/// When the device is ready, and its work alone. Requires 0 <= samples; beyond the last point the
/// last segment goes on.
double work_seconds(const DeviceCurve& curve, double samples);
double ready_seconds(const ExchangeTimes& exchange, double work);

/// A step with these samples a device.
Seconds step_seconds(const BatchOption& option, const std::vector<std::int64_t>& samples);

/// The least seconds of a step against its samples, over all splits: all devices with samples that
/// are not at their caps are ready at the same moment tau, so the samples are the sum of the
/// curves' inverses at tau (water-filling). Exact, straight between points, same rules as above;
/// first point at 0 samples. Any fraction of a sample counts, whatever the unit: no split in units
/// is quicker. O(m log m) for m points of all curves. Requires a verified option.
std::vector<CurvePoint> least_step(const BatchOption& option);

/// Batches of whole units: the largest of at most so many samples, the smallest of at least so
/// many.
std::int64_t batch_below(const BatchOption& option, double samples);
std::int64_t batch_above(const BatchOption& option, double samples);

/// The split of so many samples, in whole units, with the least step: from the parts below the
/// straight optimum, the rest one by one to whoever is ready first with one more (optimal for a
/// largest of increasing functions). Empty: more than all devices take, or no whole units.
/// O(n log m + n log n).
///
///   curves of 1 s + 0.1 s and 2 s + 0.2 s a sample, 28 samples: 22 and 6, in units of 4: 24 and 4
std::vector<std::int64_t> split_batch(const BatchOption& option, std::int64_t batch);

/// Most samples, in whole units, that a step of so long takes.
std::int64_t samples_within(const BatchOption& option, Seconds step);

}  // namespace motley::adapt
