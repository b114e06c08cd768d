#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/units.h"

namespace motley::cluster {

/// A device kind that a plan may name without having one: memory as printed on the box.
struct PlanningKind {
  std::string_view name;
  Bytes memory;
};

/// The built-in table, ordered by name.
std::span<const PlanningKind> planning_kinds();

/// Every kind that a cluster file may name: "cpu", "cuda" and the planning kinds.
std::vector<std::string> known_kinds();

}  // namespace motley::cluster
