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
/// Waits until it has reached the launcher's store; what comes then is in the pipe. `socket`: where
/// the coordinator listens; "" for the others. Error: the relay's own.
Result<RelayProcess> start_relay(const std::string& worker, const std::string& socket);

/// A line of a pipe or socket, byte by byte: nothing after it is taken. Runtime error `run.timeout`
/// after so many seconds, `run.pipe` at its end.
Result<std::string> read_one_line(int descriptor, double patience);

}  // namespace motley::run
