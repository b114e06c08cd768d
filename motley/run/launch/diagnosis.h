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

/// Says where the workers of a job are or were, from their status files. Needs the files of run_dir
/// only, so it works for dead workers, and in any process of the same machine.
class Diagnosis {
 public:
  /// `job` outlives the object, and may be given further devices.
  explicit Diagnosis(const Job& job);

  /// "step 17, ^9 motley::all_reduce "bucket 0"": each lane that is busy, and of sends and
  /// receives the first with whom it is. Says so when the
  /// worker never started. Reads the program on the first call (for instruction names).
  std::string where(int rank);
  /// One line for all ranks: "rank 0 (a:0): step 17, ...; rank 1 (a:1): ...".
  std::string all();
  /// Ranks that have started on this machine and are no longer alive.
  std::vector<int> find_lost();
  /// The step that it is or was in; none: it never started.
  std::optional<std::int64_t> step(int rank);
  /// Has it started on this machine, and not ended? For who comes later and may find other
  /// processes of the same numbers.
  bool is_running(int rank);
  /// Changes whenever some worker gets on; for finding out that none does.
  std::uint64_t progress();

 private:
  const StatusFile* status(int rank);
  std::string instruction(int rank, InstructionId id);
  const program::DeviceProgram* own_program(int rank) const;
  int find_peer(int rank, InstructionId id) const;  // of a send or receive; -1: not known

  const Job& job_;
  std::vector<std::unique_ptr<StatusFile>> status_;  // by rank; null until the file is there
  bool program_read_ = false;
  program::Program program_;  // empty when it cannot be read
};

/// "rank 1 (a:1)".
std::string rank_name(const Job& job, int rank);

}  // namespace motley::run
