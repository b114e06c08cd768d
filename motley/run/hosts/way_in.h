#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"

namespace motley::run {

/// How a command on another machine is started.
enum class WayIn {
  kSsh,    ///< OpenSSH's client with the user's own settings; it asks for nothing
  kSlurm,  ///< srun: a step beside others of the allocation that this process is in
  kMpi,    ///< mpirun, of Open MPI or MPICH
};
/// "ssh", "slurm" or "mpi". Usage error `cli.launcher`: another word.
Result<WayIn> find_way_in(std::string_view word);

/// The command that runs motley's agent on a host. `program`: motley here, which is taken there too
/// if it lies there; else the one in the path.
std::vector<std::string> agent_command(WayIn way, const std::string& host,
                                       const std::string& program);

}  // namespace motley::run
