#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/job.h"

namespace motley::run {

/// Returns the name of the folder in which a run's ranks keep parts on their hosts: the run's name,
/// then a name made from how the program cuts parameters and which host has which rank. So ranks
/// with the same cut find their parts again.
std::string kept_name(const std::string& run, const program::Program& program, const Job& job);

/// Brings the files of a checkpoint that hosts keep into its folder and completes it. Runtime error
/// `run.held`: a host is unreachable or no longer has a file; it names the missing files.
Result<void> gather_held(Hosts& hosts, const std::string& checkpoint);

/// Before a run resumes from its latest checkpoint: brings what hosts keep of it, unless each rank
/// will find its own part in `kept`.
Result<void> gather_for(Hosts& hosts, const Job& job, const std::string& kept);

/// Sends the hosts of the job's ranks the list of checkpoints that its run directory still has.
/// They remove their parts of all others.
Result<void> retain_held(Hosts& hosts, const Job& job);

}  // namespace motley::run
