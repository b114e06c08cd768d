#pragma once

#include <string_view>

namespace motley::program {

/// Names, in programs and checkpoints, of state besides parameters and optimizer states.
inline constexpr std::string_view kLossScaleState = "motley/loss_scale";
/// Suffixes of a parameter's name: its exponential average, its copy in float32.
inline constexpr std::string_view kAverageSuffix = "/average";
inline constexpr std::string_view kMasterSuffix = "/master";

/// In a move (synth/state/move.h), the prefix of what a device had before it: "old/fc.weight".
inline constexpr std::string_view kOldPrefix = "old/";

/// Prefix of a mirror's name, followed by the rank of the original: "mirror/2/fc.weight".
inline constexpr std::string_view kMirrorPrefix = "mirror/";

}  // namespace motley::program
