#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/ids.h"
#include "motley/program/program.h"
#include "motley/run/hosts/status.h"
#include "motley/run/job.h"

namespace motley::run {

/// Reports where the workers of a job are or were, from their status files. Needs only the files of
/// run_dir, so it works for dead workers and in any process of the same machine.
class Diagnosis {
 public:
  /// `job` outlives the object; it may gain devices meanwhile.
  explicit Diagnosis(const Job& job);

  /// Returns "step 17, ^9 motley::all_reduce "bucket 0"": each busy lane, and the first send or
  /// receive with its peer; or that it never started. Reads the program once, for names.
  std::string where(int rank);
  /// Returns one line for all ranks: "rank 0 (a:0): step 17, ...; rank 1 (a:1): ...".
  std::string all();
  /// Returns the ranks that started on this machine and are no longer alive.
  std::vector<int> find_lost();
  /// Returns the rank's current or last step; none: it never started.
  std::optional<std::int64_t> step(int rank);
  /// Tells whether the rank started here and has not ended, even if its number was reused.
  bool is_running(int rank);
  /// Returns a number that changes whenever a worker progresses, to detect that none does.
  std::uint64_t progress();

 private:
  const StatusFile* status(int rank);
  std::string instruction(int rank, InstructionId id);
  const program::DeviceProgram* own_program(int rank) const;
  int find_peer(int rank, InstructionId id) const;  // of a send or receive; -1: unknown

  const Job& job_;
  std::vector<std::unique_ptr<StatusFile>> status_;  // by rank; null until the file exists
  bool program_read_ = false;
  program::Program program_;  // empty if it cannot be read
};

/// Returns "rank 1 (a:1)".
std::string rank_name(const Job& job, int rank);

}  // namespace motley::run
