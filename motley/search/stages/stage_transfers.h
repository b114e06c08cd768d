#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "motley/base/result.h"
#include "motley/search/stages/stage_plan.h"
#include "motley/simulate/task_graph.h"

namespace motley::search {

/// A stage with its place in the cluster.
struct PlacedStage {
  const PlannedStage* stage;
  const StageUnit* unit;
  int host;  ///< of the cluster
};
/// [replica][stage]; the plan and the costs must outlive them.
using PlacedStages = std::vector<std::vector<PlacedStage>>;
PlacedStages place_in_cluster(const StagePlan& plan, const StageCosts& costs);

/// Do messages share hosts' links with others, or has each what it has alone?
enum class LinkSharing { kShared, kAlone };

/// What stages send each other, each priced once: messages between two, sums by several. Between
/// hosts it is flows over the links out of a host and into it. Usage error without a link: "no link
/// from v100-16g to t4".
class StageTransfers {
 public:
  /// The costs must outlive it.
  StageTransfers(const StageCosts& costs, LinkSharing sharing) : costs_(costs), sharing_(sharing) {}

  /// Returns the seconds of a message when nothing else is under way.
  Result<double> message_seconds(const PlacedStage& from, const PlacedStage& to, Bytes bytes);
  /// Adds a message to a lane of the graph, the same in all calls.
  Result<simulate::TaskId> add_message(simulate::TaskGraphBuilder& builder, simulate::LaneId lane,
                                       const PlacedStage& from, const PlacedStage& to, Bytes bytes);
  /// Returns the all-reduce of `bytes`, which each member's unit holds, along the members in their
  /// order, host by host. Devices sum what they have the same part of; one that has the parts of
  /// several others does one after the other with each. So as many exchange at once as the
  /// narrowest unit has devices.
  Result<cost::Transfer> ring(const std::vector<PlacedStage>& members, double bytes);
  /// Returns bytes/s by link, of what is priced so far.
  const std::vector<double>& capacities() const { return capacities_; }

 private:
  /// Hosts, units, bytes.
  using MessageKey = std::tuple<int, int, std::size_t, std::size_t, std::int64_t>;
  static MessageKey key_of(const PlacedStage& from, const PlacedStage& to, Bytes bytes) {
    return {from.host, to.host, from.stage->unit, to.stage->unit, bytes.value};
  }
  std::int32_t link(const PlacedStage& of, int direction);

  const StageCosts& costs_;
  const LinkSharing sharing_;
  std::map<int, std::size_t> links_;  // 2 * host + direction -> link
  std::vector<double> capacities_;
  std::map<MessageKey, simulate::TransferId> messages_;  // to other hosts
  std::map<MessageKey, double> message_seconds_;
};

}  // namespace motley::search
