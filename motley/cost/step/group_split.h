#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "motley/cost/step/step_curves.h"

namespace motley::cost {

/// A device of a fixed group.
struct GroupMember {
  const StepCurves* curves = nullptr;
  std::int64_t least = 1;  ///< samples; 0: it may idle
  std::int64_t most = 0;
};

/// A split of a batch over a group, and its step by the closed form.
struct GroupSplit {
  std::vector<std::int64_t> samples;  ///< per member; 0: it idles
  double seconds = 0;
};

/// Returns the split in whole samples with the least step, exact for nondecreasing curves
/// (filling.h). Idle members delay nobody; exchanges are those of the whole group. Empty if the
/// members' limits do not allow the batch. All curves have these exchanges. O(members log(batch)).
std::optional<GroupSplit> find_group_split(const std::vector<GroupMember>& group,
                                           const GroupExchanges& exchanges, std::int64_t batch);

struct GroupSplitLimits {
  /// Limit of devices with samples; members with `least` > 0 may be left out.
  std::size_t devices = 0;
  double seconds = 0;  ///< the step is below this; else there is no split, found in O(members)
};
std::optional<GroupSplit> find_group_split(const std::vector<GroupMember>& group,
                                           const GroupExchanges& exchanges, std::int64_t batch,
                                           const GroupSplitLimits& limits);

double group_step(const std::vector<GroupMember>& group, const GroupExchanges& exchanges,
                  const std::vector<std::int64_t>& samples);

/// Returns W of a group's exchanges (closed_form.h), with its slowest updates.
std::vector<double> group_tails(const std::vector<GroupMember>& group,
                                const GroupExchanges& exchanges);

}  // namespace motley::cost
