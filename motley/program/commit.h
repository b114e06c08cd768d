#pragma once

#include <optional>
#include <vector>

#include "motley/program/program.h"

namespace motley::program {

/// Makes the one number that all ranks sum at their commit: f32 [1].
inline constexpr std::string_view kBallot = "motley::ballot";

/// Where a device's step is committed (synth/state/commit.h): at the sum of a ballot over all
/// ranks. A rank that begins the sum has done all other exchanges of the step. A rank that has its
/// result knows that all ranks have, and that each can end the step without the others.
struct Commit {
  std::size_t at = 0;  ///< position of the sum; compute instructions after it end the step
  /// Persistent buffers written before the sum: undoing the step requires copies of them.
  std::vector<BufferId> written;
};
/// Returns none if the step has no commit and cannot be undone.
std::optional<Commit> find_commit(const DeviceProgram& program);

}  // namespace motley::program
