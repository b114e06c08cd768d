#pragma once

#include <string>
#include <vector>

#include "motley/cost/measured/profile_store.h"
#include "motley/cost/trust/interval.h"

namespace motley::cost {

/// Where the times of a prediction come from, best first.
enum class Origin {
  kMeasured,  ///< every operator was measured on these devices
  kModelled,  ///< some are modelled from other operators (OperatorModel)
  kCarried,   ///< some devices are not here; operators were measured on another kind (CarriedTimes)
  kKinds,     ///< some devices are known by their data sheet only (KindTimes)
};

/// What a device's times rest on.
struct Grounds {
  Origin origin = Origin::kMeasured;
  std::string text = "measured";  ///< for people: "carried from NVIDIA A100-SXM4-40GB"
};

/// What a prediction's interval rests on.
struct Experience {
  std::vector<double> residuals;  ///< measured / predicted - 1 of other cases
  std::string basis;              ///< for people: "9 earlier runs on this cluster"
  PredictionInterval around(double prediction) const {
    return conformal_interval(prediction, residuals);
  }
};

/// Where all was measured, runs that were predicted before tell most: those of this model on this
/// cluster, else those on this cluster, else all; the first of these groups that has kLeastRuns.
/// Else residuals of Motley's own benchmark (`make bench-accuracy`) for that origin, which are
/// another machine's. `quantity`: "step" or "memory".
Experience find_experience(const std::vector<PredictionEntry>& earlier,
                           const PredictionEntry& wanted, Origin origin);

/// An 80 % interval needs nine residuals: one beyond either end (interval.h).
inline constexpr std::size_t kLeastRuns = 9;

}  // namespace motley::cost
