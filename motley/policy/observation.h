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
  static void fields(auto& it, auto& field) {
    field("device", it.device)("samples", it.samples)("ready", it.ready)("end", it.end)("update",
                                                                                        it.update);
  }
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
  static constexpr const char* kKind[] = {"seen", "step"};
  static void fields(auto& it, auto& field) {
    field("step", it.step)("at", it.at)("took", it.took)("plan", it.plan)(
        "global_batch", it.global_batch)("devices", it.devices)("exchange", it.exchange)(
        "blocking", it.blocking);
  }
};

/// Squared norms of a step's gradients: of the whole batch's mean gradient, and of the mean
/// gradients of its pieces (a micro-batch of a device), each with its samples.
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

/// A plan, or a split (plan: -1), that was asked for could not be begun.
struct RefusalSeen {
  int plan = 0;
  int runs = 0;     ///< the plan that goes on
  std::string why;  ///< of which rank, with arithmetic where memory lacks
  bool operator==(const RefusalSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "refusal"};
  static void fields(auto& it, auto& field) {
    field("plan", it.plan)("runs", it.runs)("why", it.why);
  }
};

/// A device will be gone.
struct NoticeSeen {
  std::string device;
  Seconds at, left;  ///< when it was told, and for how long the device stays
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
  bool was_given_back = false;  ///< by people of the job: nobody took it
  bool operator==(const LossSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "loss"};
  static void fields(auto& it, auto& field) {
    field("device", it.device)("at", it.at)("given_back", it.was_given_back);
  }
};

/// A device is there, has loaded and may take part.
struct ArrivalSeen {
  std::string device;
  Seconds at;
  bool operator==(const ArrivalSeen&) const = default;
  static constexpr const char* kKind[] = {"seen", "arrival"};
  static void fields(auto& it, auto& field) { field("device", it.device)("at", it.at); }
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
  static constexpr const char* kKind[] = {"seen", "price"};
  static void fields(auto& it, auto& field) {
    field("kind", it.kind)("zone", it.zone)("at", it.at)("per_hour", it.per_hour)("spot",
                                                                                  it.is_spot);
  }
};

/// What a device's memory holds, as its steps so far show.
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
