#pragma once

#include "motley/control/training/adapting.h"
#include "motley/run/hosts/control_socket.h"

namespace motley::control {

/// Answers requests to a running elastic job with the state, or an `error` with its kind. `leave`
/// (only with the control socket's word) and `join` name a device; a `join` without one takes the
/// first absent device, or has a `joiner`, the text of a new device (joiner.h). `state` changes
/// nothing.
void answer_requests(run::ControlSocket& control_socket, Adapting& adapting);

}  // namespace motley::control
