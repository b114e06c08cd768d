#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/hosts/hosts.h"

namespace motley::run {

/// A worker verb on this machine ("") or another.
struct WorkerTask {
  std::vector<std::string> arguments;
  std::string host;
};

/// Runs worker verbs in parallel until each has printed one line, its result. Returns these lines
/// in order. Workers keep running until all are done, so that none is alone; then all are killed.
Result<std::vector<std::string>> run_side_by_side(const std::string& worker,
                                                  const std::vector<WorkerTask>& tasks,
                                                  double timeout_s, Hosts* hosts = nullptr);

/// Runs a program found in PATH, such as the exporter, to its end and returns its stdout. Exit code
/// 75 (stopped) is no error. Forwards SIGTERM and SIGINT as SIGTERM. Shares this process's stderr.
Result<std::string> run_program(const std::string& program,
                                const std::vector<std::string>& arguments, double timeout_s);

}  // namespace motley::run
