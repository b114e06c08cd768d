#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"

namespace motley::run {

/// How a command on another machine is started.
enum class WayIn {
  kSsh,    ///< OpenSSH's client with the user's settings, without prompts
  kSlurm,  ///< srun: a step beside others in this process's allocation
  kMpi,    ///< mpirun, of Open MPI or MPICH
};
/// Parses "ssh", "slurm" or "mpi". Usage error `cli.launcher`: another word.
Result<WayIn> find_way_in(std::string_view word);

/// Returns the command that runs motley's agent on a host: `program` if there, else motley in PATH.
std::vector<std::string> agent_command(WayIn way, const std::string& host,
                                       const std::string& program);

}  // namespace motley::run
