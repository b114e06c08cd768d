#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "motley/base/descriptor.h"
#include "motley/base/result.h"
#include "motley/control/run_directory.h"

namespace motley::control {

struct Holder {
  std::int64_t pid = 0;  ///< 0: unknown
  std::string host;      ///< "": unknown
};

/// Returns the process that has claimed a run directory, or leads a run there (start.json). Other
/// hosts' processes are seen only by claims, where file locks work across hosts.
std::optional<Holder> find_holder(const RunDirectory& directory);

/// Usage error `run.in-use`: another process holds the directory.
Result<void> check_not_in_use(const RunDirectory& directory);

/// A lock on RUN_DIR/in_use, which ends with the object, or with the process however it ends.
class Claim {
 public:
  /// Creates and claims the directory; one of two simultaneous claims succeeds. Errors as in
  /// check_not_in_use. A process may claim again; where files cannot be locked, nothing is claimed.
  static Result<Claim> take(const RunDirectory& directory);

 private:
  explicit Claim(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

}  // namespace motley::control
