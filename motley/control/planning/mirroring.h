#pragma once

#include <string>

#include "motley/control/planning/planning.h"

namespace motley::control {

/// Adds mirrors of state that too few devices hold, so that any `inputs.survive` of them may be
/// lost, or all but one if there are fewer. Adds as many as fit beside the program.
Result<program::Program> add_mirrors(const Inputs& inputs, const plan::Plan& plan,
                                     program::Program program);

/// Do the remaining devices hold all state after the loss of any `survive` devices?
bool outlives_losses(const program::Program& program, int survive);
/// Does a plan survive the losses? Lowers its program if that must decide and is missing.
Result<bool> outlives_losses(const Inputs& inputs, const Planned& planned, int survive);

struct MirrorPrice {
  Bytes kept, sent;  ///< `sent`: per step
  int keepers = 0;   ///< devices that hold mirrors
  int survives = 0;  ///< losses at once that the program survives, with or without mirrors
  int devices = 0;
};
MirrorPrice find_mirror_price(const program::Program& program);

/// Returns "mirrors: 1.2 MiB on 3 devices, 300 KiB a step; any 1 of 3 may be lost" or similar.
std::string print_mirror_price(const MirrorPrice& price);
/// Describes losses that a program does not survive, or the cost of its mirrors. "": it survives
/// any single loss without mirrors.
std::string describe_losses(const program::Program& program);

}  // namespace motley::control
