#pragma once

#include <string_view>

namespace motley::program {

/// Names of what a step keeps beside parameters and their optimizer's states: in a program's
/// buffers, and so in checkpoints.
inline constexpr std::string_view kLossScaleState = "motley/loss_scale";
/// Behind a parameter's name: its exponential average, its copy in float32.
inline constexpr std::string_view kAverageSuffix = "/average";
inline constexpr std::string_view kMasterSuffix = "/master";

/// In a move (synth/state/move.h) in front of the name of what a device had before it:
/// "old/fc.weight".
inline constexpr std::string_view kOldPrefix = "old/";

/// In front of a mirror's name, with the rank of whose buffer it is a copy: "mirror/2/fc.weight".
inline constexpr std::string_view kMirrorPrefix = "mirror/";

}  // namespace motley::program
