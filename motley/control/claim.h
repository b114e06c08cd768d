#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "motley/base/descriptor.h"
#include "motley/base/result.h"
#include "motley/control/run_directory.h"

namespace motley::control {

/// The process that holds a run directory.
struct Holder {
  std::int64_t pid = 0;  ///< 0: unknown
  std::string host;      ///< "": unknown
};

/// Returns the process that has claimed a run directory, or that leads a run there (start.json).
/// Processes of other hosts are seen through claims only, and only where the file system locks
/// files across hosts.
std::optional<Holder> find_holder(const RunDirectory& directory);

/// Usage error `run.in-use`: another process holds the directory.
Result<void> check_not_in_use(const RunDirectory& directory);

/// Reserves a run directory for this process with a lock on RUN_DIR/in_use. The lock ends with the
/// object or the process, however the process ends.
class Claim {
 public:
  /// Creates the directory and claims it. Of two simultaneous claims one succeeds. Errors as in
  /// check_not_in_use. A process may claim its own directory again; where files cannot be locked,
  /// no lock is taken.
  static Result<Claim> take(const RunDirectory& directory);

 private:
  explicit Claim(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

}  // namespace motley::control
