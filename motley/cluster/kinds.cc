#include "motley/cluster/kinds.h"

#include <array>

namespace motley::cluster {
namespace {

constexpr Bytes gib(std::int64_t count) { return Bytes(count << 30); }

constexpr std::array kKinds = {
    PlanningKind{"a10", gib(24)},       PlanningKind{"a100-40g", gib(40)},
    PlanningKind{"a100-80g", gib(80)},  PlanningKind{"a6000", gib(48)},
    PlanningKind{"gtx1080ti", gib(11)}, PlanningKind{"h100-80g", gib(80)},
    PlanningKind{"h200", gib(141)},     PlanningKind{"l4", gib(24)},
    PlanningKind{"l40s", gib(48)},      PlanningKind{"p100", gib(16)},
    PlanningKind{"rtx2080ti", gib(11)}, PlanningKind{"rtx3080", gib(10)},
    PlanningKind{"rtx3090", gib(24)},   PlanningKind{"rtx4080", gib(16)},
    PlanningKind{"rtx4090", gib(24)},   PlanningKind{"rtx5090", gib(32)},
    PlanningKind{"t4", gib(16)},        PlanningKind{"v100-16g", gib(16)},
    PlanningKind{"v100-32g", gib(32)},
};

}  // namespace

std::span<const PlanningKind> planning_kinds() { return kKinds; }

std::vector<std::string> known_kinds() {
  std::vector<std::string> names = {"cpu", "cuda"};
  for (const PlanningKind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

}  // namespace motley::cluster
