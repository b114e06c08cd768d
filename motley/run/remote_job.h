#pragma once

#include <set>
#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/job.h"

namespace motley::run {

/// Where a job lies on a host, for its agent.
inline constexpr std::string_view kRemoteJob = "{scratch}/run/job.json";

/// The machines of the job's devices other than this one.
std::set<std::string> remote_hosts(const Job& job);

/// Says where the ranks meet, where they are on several machines: at rank 0's.
Result<void> choose_store(Hosts& hosts, Job& job);

/// Gives a host all that its ranks read: programs, model, data and the checkpoint to go on from,
/// each file only where the host has not its like; and the job with their places there. What Python
/// loads, and folders, must lie there at the same path: usage error `host.data`.
Result<void> place_job(HostLink& link, const Job& job);

/// Brings what a host's ranks left in its run directory into the job's: traces and, where rank 0 is
/// there, checkpoint and model.
Result<void> bring_results(HostLink& link, const Job& job);

}  // namespace motley::run
