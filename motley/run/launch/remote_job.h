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

/// Chooses an agent for each rank: on the host of its device, the one with the fewest, in the order
/// of a launcher's ranks; and says in the job where the ranks meet, where they are on several
/// machines. Gives each other machine all that its ranks read: programs, model, data and the
/// checkpoint to go on from, each file only where it has not its like; and the job with their
/// places there. `path`: of the job here, which is yet to be written. Empty where all ranks are
/// started by this process. Errors: of Hosts::reach; runtime error `host.wire`: a host cannot
/// connect to the one where the ranks meet; usage error `host.data`: what Python loads, and
/// folders, must lie on each host at the same path.
///
/// Where the plan may change each host gets all of programs, model and data, and must be able to
/// connect to the coordinator's machine, where the ranks meet: the job has the key server's port
/// and word, and is given its address. Hosts of an elastic job whose devices are all absent need
/// not answer.
Result<std::vector<Seat>> place_job(Hosts& hosts, const std::string& path, Job& job);

/// The same of a job that another coordinator has placed, which is gone: hosts that were reached
/// have it already, and are told where its processes meet now.
Result<std::vector<Seat>> find_job(Hosts& hosts, Job& job);

/// The same for a host of a job that runs, which has come back. The job's path there. Any thread.
Result<std::string> place_again(const Hosts& hosts, const std::string& host,
                                const Hosts::Reached& reached, const Job& running);

/// Tells the host of a device that the job has been given of it, where it has the job already: then
/// it would not be placed again.
Result<void> place_device(Hosts& hosts, const Job& job, std::size_t rank);

/// Gives a host a checkpoint of this machine, by its folder; where in the agent's folder it lies.
Result<void> place_checkpoint(HostLink& link, const std::string& folder);
std::string checkpoint_there(const std::string& folder);

/// Brings the traces that the ranks of other machines left in their run directories into the job's.
Result<void> bring_traces(Hosts& hosts, const Job& job);

/// What rank 0 does in the end where it is on the coordinator's machine: models of the checkpoints
/// here.
Result<void> publish_models(const Job& job);

}  // namespace motley::run
