#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::peers {

/// The work of an operator or a whole step.
struct StepWork {
  double launches = 0;  ///< operators started, or any proportional count
  Flops flops;          ///< as kernels run them, see `tile_padding`
  Bytes bytes;          ///< moved to and from device memory
  bool operator==(const StepWork&) const = default;
};

struct DeviceRates {
  double flops_per_second = 0;  ///< peak for the dtype; > 0
  BytesPerSecond bandwidth;     ///< of its memory; > 0
  double launch_scale = 1;      ///< an operator's start-up, relative to the reference device
  bool operator==(const DeviceRates&) const = default;
};

/// Analytic time of an operator or a step:
///   launch_scale (fixed + launches launch) + flops_share flops / peak + bytes_share bytes /
///   bandwidth.
/// The roofline of Williams, Waterman and Patterson (CACM 2009) with start-up costs, and with the
/// sum of its two bounds instead of the larger: a step has operators of both kinds in sequence, and
/// within an operator the two overlap partly. For a single operator the sum is at most twice the
/// larger. A share is the time over that at peak rate (1 / efficiency).
struct Roofline {
  Seconds fixed;           ///< once per step
  Seconds launch;          ///< for each launch
  double flops_share = 0;  ///< >= 0
  double bytes_share = 0;  ///< >= 0
  bool operator==(const Roofline&) const = default;
};

/// Example: fixed 10 ms, launch 1 ms, shares 2 and 1.5, 5 launches, 1 TFLOP at 4 TFLOP/s and
/// 60 GB at 300 GB/s: 10 + 5 ms + 2 * 0.25 s + 1.5 * 0.2 s = 0.815 s.
Seconds estimate_time(const Roofline& model, const StepWork& work, const DeviceRates& device);

struct RooflineSample {
  StepWork work;
  DeviceRates device;
  Seconds measured;  ///< > 0
  int host = -1;     ///< group with one drag (peers/steps/drag.h); -1: none
};

struct RooflineFit {
  Roofline model;
  std::vector<double> drags;  ///< of the hosts: times are drag * estimate_time

  double drag(int host) const;
};

/// Fits the four constants, all >= 0, by relative least squares over samples of one or more kinds
/// of device, with a drag for each host. Separating the terms needs two or more works with
/// different ratios of launches, flops and bytes; a term without support gets 0. Errors: cost.fit,
/// as `fit_with_drags`, and for a rate that is not > 0.
Result<RooflineFit> fit_roofline(const std::vector<RooflineSample>& samples);

/// Returns the padding to tiles: 48 channels in tiles of 32 run as 64, 1.333 times. Both > 0.
double tile_padding(std::int64_t channels, std::int64_t tile);

/// Converts a time measured on `source` to `target`: the model splits it into start-up, arithmetic
/// and memory traffic, and each part changes by the ratio of the two devices. The model's error on
/// `source` is assumed to be the same on `target`:
///   measured estimate_time(target) / estimate_time(source).
/// Keeps the measured time where the model's price on `source` is 0.
///
/// Example: 0.5 s that the model splits 1 : 4 into launches and flops, to a device with twice the
/// peak and the same launch cost: 0.1 + 0.4 / 2 = 0.3 s.
Seconds carried_time(Seconds measured, const StepWork& work, const Roofline& model,
                     const DeviceRates& source, const DeviceRates& target);

}  // namespace motley::peers
