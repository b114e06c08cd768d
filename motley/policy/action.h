#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"

namespace motley::policy {

/// Samples of one device in a step.
struct Share {
  std::string device;
  std::int64_t samples = 0;
  bool operator==(const Share&) const = default;
  static void fields(auto& it, auto& field) { field("device", it.device)("samples", it.samples); }
};

/// Go on by one of the plans that the policy was given. The batch stays.
struct UsePlan {
  int plan = 0;
  bool operator==(const UsePlan&) const = default;
  static constexpr const char* kKind[] = {"do", "plan"};
  static void fields(auto& it, auto& field) { field("plan", it.plan); }
};

/// Split the batch so; devices that are not named are idle. Their sum is the global batch.
struct UseSplit {
  std::vector<Share> shares;
  bool operator==(const UseSplit&) const = default;
  static constexpr const char* kKind[] = {"do", "split"};
  static void fields(auto& it, auto& field) { field("shares", it.shares); }
};

/// Another global batch, with its split and the factor of all learning rates that belongs to it.
struct UseBatch {
  std::vector<Share> shares;
  double lr_factor = 1;
  bool operator==(const UseBatch&) const = default;
  static constexpr const char* kKind[] = {"do", "batch"};
  static void fields(auto& it, auto& field) {
    field("shares", it.shares)("lr_factor", it.lr_factor);
  }
};

/// Save now.
struct Save {
  bool operator==(const Save&) const = default;
  static constexpr const char* kKind[] = {"do", "save"};
  static void fields(auto&, auto&) {}
};

/// Rent so many machines more (fewer where negative) of a kind in a zone.
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

/// Measure the noise of gradients (observation.h) in every so-many-th step, those whose number it
/// divides. What is trained stays the same.
struct MeasureNoise {
  std::int64_t every = 1;
  bool operator==(const MeasureNoise&) const = default;
  static constexpr const char* kKind[] = {"do", "noise"};
  static void fields(auto& it, auto& field) { field("every", it.every); }
};

/// Say something of a device to people: nothing is done.
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
