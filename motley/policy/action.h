#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::policy {

struct Share {
  std::string device;
  std::int64_t samples = 0;
  bool operator==(const Share&) const = default;
  static void fields(auto& it, auto& field) { field("device", it.device)("samples", it.samples); }
};

/// Continue with one of the policy's plans. The batch stays.
struct UsePlan {
  int plan = 0;
  bool operator==(const UsePlan&) const = default;
  static constexpr const char* kKind[] = {"do", "plan"};
  static void fields(auto& it, auto& field) { field("plan", it.plan); }
};

/// Split the batch like this. Devices without a share are idle; the sum is the global batch.
struct UseSplit {
  std::vector<Share> shares;
  bool operator==(const UseSplit&) const = default;
  static constexpr const char* kKind[] = {"do", "split"};
  static void fields(auto& it, auto& field) { field("shares", it.shares); }
};

/// Another global batch, with its split and the factor for all learning rates.
struct UseBatch {
  std::vector<Share> shares;
  double lr_factor = 1;
  bool operator==(const UseBatch&) const = default;
  static constexpr const char* kKind[] = {"do", "batch"};
  static void fields(auto& it, auto& field) {
    field("shares", it.shares)("lr_factor", it.lr_factor);
  }
};

struct Save {
  bool operator==(const Save&) const = default;
  static constexpr const char* kKind[] = {"do", "save"};
  static void fields(auto&, auto&) {}
};

/// Rent `count` more machines of a kind in a zone; fewer where `count` is negative.
struct Rent {
  std::string kind, zone;
  bool spot = false;
  int count = 0;
  bool operator==(const Rent&) const = default;
  static constexpr const char* kKind[] = {"do", "rent"};
  static void fields(auto& it, auto& field) {
    field("kind", it.kind)("zone", it.zone)("spot", it.spot)("count", it.count);
  }
};

/// Measure gradient noise (observation.h) in steps that `every` divides. Training stays the same.
struct MeasureNoise {
  std::int64_t every = 1;
  bool operator==(const MeasureNoise&) const = default;
  static constexpr const char* kKind[] = {"do", "noise"};
  static void fields(auto& it, auto& field) { field("every", it.every); }
};

/// Report something about a device to people. Changes nothing.
struct Tell {
  std::string device, text;
  bool operator==(const Tell&) const = default;
  static constexpr const char* kKind[] = {"do", "tell"};
  static void fields(auto& it, auto& field) { field("device", it.device)("text", it.text); }
};

using Action = std::variant<UsePlan, UseSplit, UseBatch, Save, Rent, Tell, MeasureNoise>;

Json action_to_json(const Action& action);
Result<Action> action_from_json(const Json& json, const std::string& where);

}  // namespace motley::policy
