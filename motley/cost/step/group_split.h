#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "motley/cost/step/step_curves.h"

namespace motley::cost {

/// A device of a group whose members are given.
struct GroupMember {
  const StepCurves* curves = nullptr;
  std::int64_t least = 1;  ///< samples; 0: it may idle
  std::int64_t most = 0;
};

/// A split of a batch over a group, and the step that the closed form gives it.
struct GroupSplit {
  std::vector<std::int64_t> samples;  ///< of each member; 0: it idles
  double seconds = 0;
};

/// The split in whole samples with the least step, exact for any curves that do not fall
/// (filling.h). Members who idle are not waited for; exchanges are taken as those of the whole
/// group. Empty where the members' limits do not allow the batch.
/// All curves have as many exchanges as `exchanges`. O(members * log(batch)).
std::optional<GroupSplit> find_group_split(const std::vector<GroupMember>& group,
                                           const GroupExchanges& exchanges, std::int64_t batch);

/// What is asked of a split beside that.
struct GroupSplitLimits {
  std::size_t devices = 0;  ///< that have samples, at most; who must have some may be left out
  double seconds = 0;       ///< its step is below; else there is none, found in O(members)
};
std::optional<GroupSplit> find_group_split(const std::vector<GroupMember>& group,
                                           const GroupExchanges& exchanges, std::int64_t batch,
                                           const GroupSplitLimits& limits);

/// The step of a split by the closed form.
double group_step(const std::vector<GroupMember>& group, const GroupExchanges& exchanges,
                  const std::vector<std::int64_t>& samples);

/// W of a group's exchanges (closed_form.h), after its slowest updates.
std::vector<double> group_tails(const std::vector<GroupMember>& group,
                                const GroupExchanges& exchanges);

}  // namespace motley::cost
