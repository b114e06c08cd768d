#pragma once

#include <string>

#include "motley/control/planning/planning.h"

namespace motley::control {

/// The program of a plan of the inputs with mirrors of what its devices alone have, so that any
/// `inputs.survive` of them may be lost, or all but one where there are not as many; as many
/// mirrors as there is room for beside the program itself. Unchanged where all have enough copies.
Result<program::Program> add_mirrors(const Inputs& inputs, const plan::Plan& plan,
                                     program::Program program);

/// May any so many devices of a program be lost, and the others have all that is kept?
bool outlives_losses(const program::Program& program, int survive);
/// The same of a plan; of one whose devices do not all have everything by its program, which is
/// made where it is not there.
Result<bool> outlives_losses(const Inputs& inputs, const Planned& planned, int survive);

/// What a program's mirrors take, over all its devices.
struct MirrorPrice {
  Bytes kept, sent;  ///< the latter in a step
  int keepers = 0;   ///< devices that have some
  int survives = 0;  ///< any so many devices may be lost at once, mirrors or not
  int devices = 0;
};
MirrorPrice find_mirror_price(const program::Program& program);

/// "mirrors: 1.2 MiB on 3 devices, 300 KiB a step; any 1 of 3 may be lost", or "mirrors: none; any
/// 2 of 3 devices may be lost".
std::string print_mirror_price(const MirrorPrice& price);
/// What is told beforehand of losses that a program is to outlive: whose it does not, as nobody
/// else has what they have, or what its mirrors take; "": any one may be lost, without mirrors.
std::string describe_losses(const program::Program& program);

}  // namespace motley::control
