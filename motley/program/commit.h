#pragma once

#include <optional>
#include <vector>

#include "motley/program/program.h"

namespace motley::program {

/// Makes the one number that all ranks sum at their commit: f32 [1].
inline constexpr std::string_view kBallot = "motley::ballot";

/// Where a device's step is decided (synth/state/commit.h): the sum of a ballot over all ranks.
/// Whoever begins it has done all other exchanges of the step; who has its result knows that all
/// ranks have, and that each can end the step without the others.
struct Commit {
  std::size_t at = 0;  ///< position of the sum; compute instructions behind it end the step
  /// Persistent buffers that are written before it: to undo the step they must be copied first.
  std::vector<BufferId> written;
};
/// None: the step has none, and cannot be undone.
std::optional<Commit> find_commit(const DeviceProgram& program);

}  // namespace motley::program
