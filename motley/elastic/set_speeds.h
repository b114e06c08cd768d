#pragma once

#include <vector>

#include "motley/base/units.h"
#include "motley/elastic/renting_job.h"

namespace motley::elastic {

/// The measured step time of machines that train together.
struct MeasuredSet {
  Machines machines;
  double step_s = 0;
  static void fields(auto& it, auto& field) { field("machines", it.machines)("step_s", it.step_s); }
};

/// Takes a step into the average of its set. `sets`: ascending by machines.
void add_step(std::vector<MeasuredSet>& sets, const Machines& machines, Seconds took);

/// Returns the measured steps per second; of unmeasured machines the predicted ones, scaled as at
/// the measured set of nearest predicted speed. 0: they cannot train, or nothing was measured.
double find_speed(const Machines& machines, const std::vector<MeasuredSet>& sets,
                  const SpeedTogether& predicted);

}  // namespace motley::elastic
