#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::policy {

/// One device's part of a step, in seconds of its own work since it began the step. These are one
/// point of a step's curves (search/split); they include no waiting for others.
struct DeviceStep {
  std::string device;
  std::int64_t samples = 0;
  std::vector<double> ready;   ///< when exchange k of those awaited at the step's end could start
  double end = 0;              ///< when forward, backward and packing were finished
  std::vector<double> update;  ///< seconds of the update after exchange k
  bool operator==(const DeviceStep&) const = default;
  static void fields(auto& it, auto& field) {
    field("device", it.device)("samples", it.samples)("ready", it.ready)("end", it.end)("update",
                                                                                        it.update);
  }
};

/// A step that all devices have finished.
struct StepSeen {
  std::int64_t step = 0;
  Seconds at;    ///< end of the step, since the run began
  Seconds took;  ///< on the slowest device
  int plan = 0;  ///< number of its plan (policy.h); beyond those given: one that was requested
  std::int64_t global_batch = 0;
  std::vector<DeviceStep> devices;  ///< empty: unknown
  /// Time of exchange k: the least over the devices, since the last to arrive does not wait.
  std::vector<double> exchange;
  double blocking = 0;  ///< seconds of exchanges in the middle of the step, also the least
  bool operator==(const StepSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "step"};
  static void fields(auto& it, auto& field) {
    field("step", it.step)("at", it.at)("took", it.took)("plan", it.plan)(
        "global_batch", it.global_batch)("devices", it.devices)("exchange", it.exchange)(
        "blocking", it.blocking);
  }
};

/// Squared norms of a step's gradients: of the mean gradient of the whole batch, and of the mean
/// gradient of each piece (one micro-batch of a device) with its samples.
struct NoiseSeen {
  struct Piece {
    std::int64_t samples = 0;
    double squared_norm = 0;
    bool operator==(const Piece&) const = default;
    static void fields(auto& it, auto& field) {
      field("samples", it.samples)("squared_norm", it.squared_norm);
    }
  };
  std::int64_t step = 0;
  double squared_norm = 0;
  std::vector<Piece> pieces;
  bool operator==(const NoiseSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "noise"};
  static void fields(auto& it, auto& field) {
    field("step", it.step)("squared_norm", it.squared_norm)("pieces", it.pieces);
  }
};

/// A requested plan, or a split (plan: -1), could not begin.
struct RefusalSeen {
  int plan = 0;
  int runs = 0;     ///< the plan that continues
  std::string why;  ///< names the rank; for lack of memory with the arithmetic
  bool operator==(const RefusalSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "refusal"};
  static void fields(auto& it, auto& field) {
    field("plan", it.plan)("runs", it.runs)("why", it.why);
  }
};

/// A device will be gone.
struct NoticeSeen {
  std::string device;
  Seconds at, left;  ///< time of the notice, and how long the device stays
  bool operator==(const NoticeSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "notice"};
  static void fields(auto& it, auto& field) {
    field("device", it.device)("at", it.at)("left", it.left);
  }
};

/// A device is gone.
struct LossSeen {
  std::string device;
  Seconds at;
  bool was_given_back = false;  ///< the job's own people took it back
  bool operator==(const LossSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "loss"};
  static void fields(auto& it, auto& field) {
    field("device", it.device)("at", it.at)("given_back", it.was_given_back);
  }
};

/// A device has arrived, has loaded and may take part.
struct ArrivalSeen {
  std::string device;
  Seconds at;
  bool operator==(const ArrivalSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "arrival"};
  static void fields(auto& it, auto& field) { field("device", it.device)("at", it.at); }
};

/// Price of machines that are not available now.
inline constexpr double kNotOffered = -1;

/// The price per hour of a kind in a zone from now on, for spot or on-demand machines.
struct PriceSeen {
  std::string kind, zone;
  Seconds at;
  double per_hour = 0;
  bool is_spot = true;
  bool operator==(const PriceSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "price"};
  static void fields(auto& it, auto& field) {
    field("kind", it.kind)("zone", it.zone)("at", it.at)("per_hour", it.per_hour)("spot",
                                                                                  it.is_spot);
  }
};

/// What a device's memory can hold, learned from its steps so far.
struct MemorySeen {
  std::string device;
  std::int64_t most = 0;  ///< samples
  bool operator==(const MemorySeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "memory"};
  static void fields(auto& it, auto& field) { field("device", it.device)("most", it.most); }
};

using Observation = std::variant<StepSeen, NoiseSeen, RefusalSeen, NoticeSeen, LossSeen,
                                 ArrivalSeen, PriceSeen, MemorySeen>;

Json observation_to_json(const Observation& observation);
Result<Observation> observation_from_json(const Json& json, const std::string& where);

}  // namespace motley::policy
