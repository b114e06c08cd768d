#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/hosts/hosts.h"
#include "motley/run/job.h"

namespace motley::run {

/// Returns the folder name for parts that a run's ranks keep on their hosts: the run's name, then
/// one made from cut and hosts, so that ranks with equal cuts find their parts.
std::string kept_name(const std::string& run, const program::Program& program, const Job& job);

/// Brings the files of a checkpoint that hosts keep into its folder and completes it. Runtime error
/// `run.held`: a host is unreachable or no longer has a file; it names the missing files.
Result<void> gather_held(Hosts& hosts, const std::string& checkpoint);

/// Brings what hosts keep of the latest checkpoint, before a run resumes, unless each rank will
/// find its own part in `kept`.
Result<void> gather_for(Hosts& hosts, const Job& job, const std::string& kept);

/// Tells hosts which checkpoints the run still has. They remove their parts of all others.
Result<void> retain_held(Hosts& hosts, const Job& job);

}  // namespace motley::run
