#pragma once

#include "motley/control/training/adapting.h"
#include "motley/run/hosts/control_socket.h"

namespace motley::control {

/// Answers what others ask of a running elastic job: `leave` and `join`, with the name of a device
/// (of `join` it may be absent: then the first that is not there; or there is a `joiner`, the
/// text of a device that the job has not: joiner.h), and `state`. The answer to all is the state,
/// or an `error` with its kind. `leave` is for those who know the control socket's word.
void answer_requests(run::ControlSocket& control_socket, Adapting& adapting);

}  // namespace motley::control
