#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/job.h"

namespace motley::run {

/// Name of the folder in which a run's ranks keep their parts on their hosts: the run's own and,
/// below it, one of how the program cuts parameters and which host has which rank. So ranks of the
/// same cut find theirs again.
std::string kept_name(const std::string& run, const program::Program& program, const Job& job);

/// Brings the files of a checkpoint that hosts keep into its folder, which then has all of it.
/// Runtime error `run.held`: a host cannot be reached, or has a file no more, with what lies there.
Result<void> gather_held(Hosts& hosts, const std::string& checkpoint);

/// Before a run goes on from the latest checkpoint of its directory: what hosts keep of it is
/// brought, but where each rank will find its own.
Result<void> gather_for(Hosts& hosts, const Job& job, const std::string& kept);

/// Tells the hosts of the job's ranks which checkpoints its run directory still has: of others they
/// keep nothing.
Result<void> retain_held(Hosts& hosts, const Job& job);

}  // namespace motley::run
