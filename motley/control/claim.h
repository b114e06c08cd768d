#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "motley/base/descriptor.h"
#include "motley/base/result.h"
#include "motley/control/run_directory.h"

namespace motley::control {

/// A process that has a run directory.
struct Holder {
  std::int64_t pid = 0;  ///< 0: not known
  std::string host;      ///< "": not known
};

/// Who has claimed a run directory, or leads a run there (start.json). Of processes of other hosts
/// claims alone tell, where the file system locks files for all hosts.
std::optional<Holder> find_holder(const RunDirectory& directory);

/// Usage error (run.in-use): a process other than this one has it.
Result<void> check_not_in_use(const RunDirectory& directory);

/// That a run directory is this process's: a lock on RUN_DIR/in_use, which ends with the object, or
/// with the process however that ends.
class Claim {
 public:
  /// Makes the directory. Errors as of check_not_in_use; of two that claim it at a time one has it.
  /// What this process has claimed may be claimed again, and where files cannot be locked nothing
  /// is.
  static Result<Claim> take(const RunDirectory& directory);

 private:
  explicit Claim(Descriptor file) : file_(std::move(file)) {}
  Descriptor file_;
};

}  // namespace motley::control
