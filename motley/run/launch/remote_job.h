#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/job.h"

namespace motley::run {

/// Where a rank is started.
struct Seat {
  std::string agent;  ///< of Hosts; "": this process
  std::string job;    ///< path of the job's JSON there; "": the host was not reached yet
};

/// Places a job on its hosts. Chooses an agent for each rank: on the host of its device, the one
/// with the fewest ranks, in the order of a launcher's ranks. Records in the job where ranks on
/// several machines meet. Sends each other machine all that its ranks read (programs, model, data
/// and the checkpoint to resume from; each file only if the host lacks it) and the job with the
/// paths there. `path`: of the local job file, written later. Empty: this process starts all ranks.
/// Errors: of Hosts::reach; runtime error `host.wire`: a host cannot connect to the one where the
/// ranks meet; usage error `host.data`: folders and data loaded by Python must have the same path
/// on each host.
///
/// If the plan may change, each host gets all programs, the model and the data, and must be able to
/// connect to the coordinator's machine, where the ranks meet: the job has the key server's port
/// and word, and receives its address. Hosts whose devices are all absent need not answer.
Result<std::vector<Seat>> place_job(Hosts& hosts, const std::string& path, Job& job);

/// Does the same for a lost coordinator's job: reached hosts only get the new meeting place.
Result<std::vector<Seat>> find_job(Hosts& hosts, Job& job);

/// Does the same for a host that returned to a running job. Returns the job's path. Any thread.
Result<std::string> place_again(const Hosts& hosts, const std::string& host,
                                const Hosts::Reached& reached, const Job& running);

/// Sends a new device of the job to its host, if the host already has the job.
Result<void> place_device(Hosts& hosts, const Job& job, std::size_t rank);

/// Sends a local checkpoint folder to a host, to checkpoint_there(folder) below the agent's folder.
Result<void> place_checkpoint(HostLink& link, const std::string& folder);
std::string checkpoint_there(const std::string& folder);

/// Brings the traces of ranks on other machines into the job's run directory.
Result<void> bring_traces(Hosts& hosts, const Job& job);

/// Publishes the models of local checkpoints, as rank 0 does if it is on this machine.
Result<void> publish_models(const Job& job);

}  // namespace motley::run
