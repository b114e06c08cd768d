#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"

namespace motley::run {

/// One process's place in a job that an external launcher started.
struct RankPlace {
  int rank = 0;
  int size = 1;
  int local_rank = 0;          ///< among the ranks of this host; 0 if unknown
  std::string master_address;  ///< where rank 0 (or the agent) serves the store
  int master_port = 0;
  bool agent_store = false;  ///< a store already listens there: all ranks are clients
  std::string attempt;       ///< changes with every restart by the launcher; prefix of store keys
  std::string interface;     ///< network interface requested by GLOO_SOCKET_IFNAME, or ""
  std::string source;        ///< the variables used, for messages
  bool operator==(const RankPlace&) const = default;
};

/// Reads environment variables, passed as a map; only the programs' main files read the real ones.
/// The first complete source wins:
///   torchrun, Kubernetes operators   RANK WORLD_SIZE MASTER_ADDR MASTER_PORT
///   srun                             SLURM_PROCID SLURM_STEP_NUM_TASKS SLURM_STEP_NODELIST
///   Open MPI                         OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
///   MPICH, Intel MPI                 PMI_RANK PMI_SIZE
/// MASTER_ADDR and MASTER_PORT override what SLURM gives. MPI gives no address: it is 127.0.0.1 on
/// one host, otherwise MASTER_ADDR must be set. SLURM's variables count only inside a step (srun).
/// MOTLEY_SECRET, equal on all ranks, becomes a part of `attempt`. Empty: no launcher. Usage error:
/// a value is not a number, or a rank is outside the size.
Result<std::optional<RankPlace>> find_rank_place(
    const std::map<std::string, std::string>& environment);

/// Expands a SLURM node list to at most 100,000 names: "gpu[01-02,7],x" -> gpu01 gpu02 gpu7 x.
Result<std::vector<std::string>> expand_node_list(std::string_view list);

}  // namespace motley::run
