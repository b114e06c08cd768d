#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/child_process.h"

namespace motley::run {

/// motley-worker relay (run/torch/relay.h) of this rank of an external launcher's job.
struct RelayProcess {
  Child child;
  std::string address;  ///< by which other ranks see this one
};
/// Starts the relay and waits until it has reached the launcher's store; later data is in the pipe.
/// `socket`: where the coordinator listens; "" for the other ranks. Error: the relay's own.
Result<RelayProcess> start_relay(const std::string& worker, const std::string& socket);

/// Reads one line byte by byte and nothing beyond it. Runtime errors: `run.timeout` after
/// `patience` seconds, `run.pipe` at the end of input.
Result<std::string> read_one_line(int descriptor, double patience);

}  // namespace motley::run
