#pragma once

#include <string>

#include "motley/control/planning/planning.h"

namespace motley::control {

/// Adds mirrors to a plan's program for state that too few devices hold, so that any
/// `inputs.survive` of them may be lost, or all but one if there are fewer. Adds as many mirrors as
/// fit beside the program; none if all state has enough copies.
Result<program::Program> add_mirrors(const Inputs& inputs, const plan::Plan& plan,
                                     program::Program program);

/// Do the remaining devices hold all state after the loss of any `survive` devices?
bool outlives_losses(const program::Program& program, int survive);
/// Does a plan survive these losses? If not all its devices hold everything, its program decides,
/// which is lowered if it is missing.
Result<bool> outlives_losses(const Inputs& inputs, const Planned& planned, int survive);

/// The cost of a program's mirrors, over all devices.
struct MirrorPrice {
  Bytes kept, sent;  ///< `sent`: per step
  int keepers = 0;   ///< devices that hold mirrors
  int survives = 0;  ///< losses at once that the program survives, with or without mirrors
  int devices = 0;
};
MirrorPrice find_mirror_price(const program::Program& program);

/// Returns "mirrors: 1.2 MiB on 3 devices, 300 KiB a step; any 1 of 3 may be lost", or "mirrors:
/// none; any 2 of 3 devices may be lost".
std::string print_mirror_price(const MirrorPrice& price);
/// Describes which losses a program does not survive, because no other device holds the same state,
/// or the cost of its mirrors. "": it survives any single loss without mirrors.
std::string describe_losses(const program::Program& program);

}  // namespace motley::control
