#pragma once

#include <string>
#include <vector>

#include "motley/cost/measured/profile_store.h"
#include "motley/cost/trust/interval.h"

namespace motley::cost {

/// The origin of a prediction's times, best first.
enum class Origin {
  kMeasured,  ///< every operator was measured on these devices
  kModelled,  ///< some are modelled from other operators (OperatorModel)
  kCarried,   ///< some devices are not here; operators were measured on another kind (CarriedTimes)
  kKinds,     ///< some devices are known by their data sheet only (KindTimes)
};

struct Grounds {
  Origin origin = Origin::kMeasured;
  std::string text = "measured";  ///< for people: "carried from NVIDIA A100-SXM4-40GB"
};

/// The basis of a prediction's interval.
struct Experience {
  std::vector<double> residuals;  ///< measured / predicted - 1 of other cases
  std::string basis;              ///< for people: "9 earlier runs on this cluster"
  PredictionInterval around(double prediction) const {
    return conformal_interval(prediction, residuals);
  }
};

/// Returns residuals for an interval. If everything was measured, those of earlier runs: of this
/// model on this cluster, else on this cluster, else all; the first group with kLeastRuns. Else
/// those of Motley's own benchmark (`make bench-accuracy`) for that origin, from another machine.
/// `quantity`: "step" or "memory".
Experience find_experience(const std::vector<PredictionEntry>& earlier,
                           const PredictionEntry& wanted, Origin origin);

/// An 80 % interval needs nine residuals: one beyond either end (interval.h).
inline constexpr std::size_t kLeastRuns = 9;

}  // namespace motley::cost
