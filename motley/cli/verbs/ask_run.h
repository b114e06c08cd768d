#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/run/hosts/control_socket.h"

namespace motley::cli {

/// Asks a running elastic job (control/training/requests.h); its error, or what it answers.
Result<Json> ask_run(const run::ControlSocketAddress& control_socket, const Json& question);

/// A device of a running job.
struct Seen {
  std::int64_t step = 0;  ///< done then
  std::string state;      ///< "training" (control/training/adapting.h)
  std::string why;        ///< it does not train; "": it does, or that was asked for
};
/// Asks again and again until the device is in one of these states. Errors: it is not there, with
/// why; infeasible where no plan could be made with it.
Result<Seen> wait_for_state(const run::ControlSocketAddress& control_socket,
                            const std::string& device, double seconds,
                            const std::vector<std::string>& wanted);

}  // namespace motley::cli
