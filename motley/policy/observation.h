#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::policy {

/// One device's part of a step, in seconds of its own work since it began the step. What a step's
/// curves hold (search/split) at one number of samples: waiting for others is in none of them.
struct DeviceStep {
  std::string device;
  std::int64_t samples = 0;
  std::vector<double> ready;   ///< exchange k of those that are waited for at the end could start
  double end = 0;              ///< forward, backward and packing were done
  std::vector<double> update;  ///< seconds of the update behind exchange k
  bool operator==(const DeviceStep&) const = default;
};

/// A step that all devices have finished.
struct StepSeen {
  std::int64_t step = 0;
  Seconds at;    ///< since the run began, when it was over
  Seconds took;  ///< of the device that took longest
  int plan = 0;  ///< which of the plans (policy.h) it ran; behind them: one that was asked for
  std::int64_t global_batch = 0;
  std::vector<DeviceStep> devices;  ///< of the step's plan; empty: not known
  /// Of exchange k among them: the least that a device saw, who came last and waited for nobody.
  std::vector<double> exchange;
  double blocking = 0;  ///< seconds of exchanges in the middle of the step, of the same kind
  bool operator==(const StepSeen&) const = default;
};

/// Squared norms of a step's gradients: of the whole batch's mean gradient, and of the mean
/// gradients of its pieces (a micro-batch of a device), each with its samples.
struct NoiseSeen {
  struct Piece {
    std::int64_t samples = 0;
    double squared_norm = 0;
    bool operator==(const Piece&) const = default;
  };
  std::int64_t step = 0;
  double squared_norm = 0;
  std::vector<Piece> pieces;
  bool operator==(const NoiseSeen&) const = default;
};

/// A plan, or a split (plan: -1), that was asked for could not be begun.
struct RefusalSeen {
  int plan = 0;
  int runs = 0;     ///< the plan that goes on
  std::string why;  ///< of which rank, with arithmetic where memory lacks
  bool operator==(const RefusalSeen&) const = default;
};

/// A device will be gone.
struct NoticeSeen {
  std::string device;
  Seconds at, left;  ///< when it was told, and for how long the device stays
  bool operator==(const NoticeSeen&) const = default;
};

/// A device is gone.
struct LossSeen {
  std::string device;
  Seconds at;
  bool was_given_back = false;  ///< by people of the job: nobody took it
  bool operator==(const LossSeen&) const = default;
};

/// A device is there, has loaded and may take part.
struct ArrivalSeen {
  std::string device;
  Seconds at;
  bool operator==(const ArrivalSeen&) const = default;
};

/// The price of machines that are not to be had now.
inline constexpr double kNotOffered = -1;

/// What an hour of a kind costs in a zone from now on, of spot machines or of those on demand.
struct PriceSeen {
  std::string kind, zone;
  Seconds at;
  double per_hour = 0;
  bool is_spot = true;
  bool operator==(const PriceSeen&) const = default;
};

/// What a device's memory holds, as its steps so far show.
struct MemorySeen {
  std::string device;
  std::int64_t most = 0;  ///< samples
  bool operator==(const MemorySeen&) const = default;
};

using Observation = std::variant<StepSeen, NoiseSeen, RefusalSeen, NoticeSeen, LossSeen,
                                 ArrivalSeen, PriceSeen, MemorySeen>;

/// An object whose key "seen" names the kind: "step", "noise", "refusal", "notice", "loss",
/// "arrival", "price", "memory".
Json observation_to_json(const Observation& observation);
Result<Observation> observation_from_json(const Json& json, const std::string& where);

}  // namespace motley::policy
