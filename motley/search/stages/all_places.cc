#include "motley/search/stages/all_places.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace motley::search {
namespace {

class Placer {
 public:
  Placer(StagePlan plan, const StageCosts& costs,
         const std::function<bool(const StagePlan&)>& visit)
      : plan_(std::move(plan)), costs_(costs), visit_(visit) {
    for (StageReplica& replica : plan_.replicas)
      for (PlannedStage& stage : replica.stages) stages_.push_back(&stage);
    for (const DevicePool& pool : costs.pools()) {
      std::vector<int>& hosts = size_.emplace_back();
      for (int left = pool.devices; left > 0; left -= pool.per_host)
        hosts.push_back(std::min(left, pool.per_host));
      used_.emplace_back(hosts.size(), 0);
    }
  }

  bool place(std::size_t at) {
    if (at == stages_.size()) return visit_(plan_);
    PlannedStage& stage = *stages_[at];
    const StageUnit& unit = costs_.units()[stage.unit];
    for (std::size_t host = 0; host < used_[unit.pool()].size(); ++host) {
      if (!has_room(unit, host) || is_repeated(unit.pool(), host)) continue;
      stage.host = static_cast<int>(host);
      stage.slot = used_[unit.pool()][host];
      stage.more_slots.clear();
      for (const UnitPart& part : unit.parts) {
        int& used = used_[part.pool][host];
        if (part.pool != unit.pool()) stage.more_slots.push_back(used);
        used += part.devices;
      }
      const bool goes_on = place(at + 1);
      for (const UnitPart& part : unit.parts) used_[part.pool][host] -= part.devices;
      if (!goes_on) return false;
    }
    return true;
  }

 private:
  bool has_room(const StageUnit& unit, std::size_t host) const {
    return std::all_of(unit.parts.begin(), unit.parts.end(), [&](const UnitPart& part) {
      return used_[part.pool][host] + part.devices <= size_[part.pool][host];
    });
  }
  /// Is an earlier host equally empty, with the same devices of each pool?
  bool is_repeated(std::size_t pool, std::size_t host) const {
    const std::size_t first = static_cast<std::size_t>(costs_.pools()[pool].first_host);
    const auto contents = content(first + host);
    if (!contents) return false;
    for (std::size_t before = 0; before < host; ++before)
      if (content(first + before) == contents) return true;
    return false;
  }
  /// Returns a cluster host's devices by pool; absent if some are used.
  std::optional<std::vector<int>> content(std::size_t cluster_host) const {
    std::vector<int> sizes;
    for (std::size_t p = 0; p < size_.size(); ++p) {
      const auto first = static_cast<std::size_t>(costs_.pools()[p].first_host);
      const bool is_in = cluster_host >= first && cluster_host < first + size_[p].size();
      if (is_in && used_[p][cluster_host - first] > 0) return std::nullopt;
      sizes.push_back(is_in ? size_[p][cluster_host - first] : 0);
    }
    return sizes;
  }

  StagePlan plan_;
  const StageCosts& costs_;
  const std::function<bool(const StagePlan&)>& visit_;
  std::vector<PlannedStage*> stages_;
  std::vector<std::vector<int>> size_, used_;  // [pool][host]
};

}  // namespace

bool visit_places(StagePlan plan, const StageCosts& costs,
                  const std::function<bool(const StagePlan&)>& visit) {
  return Placer(std::move(plan), costs, visit).place(0);
}

}  // namespace motley::search
