#pragma once

#include "motley/control/training/adapting.h"
#include "motley/run/hosts/control_socket.h"

namespace motley::control {

/// Answers requests to a running elastic job: `state`, and `leave` and `join` with the name of a
/// device. `join` without a device takes the first absent one; a `joiner` is the text of a device
/// that the job does not have (joiner.h). Every answer is the state, or an `error` with its kind.
/// `leave` requires the control socket's word.
void answer_requests(run::ControlSocket& control_socket, Adapting& adapting);

}  // namespace motley::control
