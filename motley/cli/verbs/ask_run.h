#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/run/hosts/control_socket.h"

namespace motley::cli {

/// Sends a request to a running elastic job (control/training/requests.h).
Result<Json> ask_run(const run::ControlSocketAddress& control_socket, const Json& question);

struct Seen {
  std::int64_t step = 0;
  std::string state;  ///< "training" (control/training/adapting.h)
  std::string why;    ///< unrequested reason why it does not train; "": none
};
/// Asks until the device is in a `wanted` state. Errors: it is not there, with the reason;
/// infeasible, no plan could include it.
Result<Seen> wait_for_state(const run::ControlSocketAddress& control_socket,
                            const std::string& device, double seconds,
                            const std::vector<std::string>& wanted);

}  // namespace motley::cli
