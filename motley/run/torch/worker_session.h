#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/job.h"
#include "motley/run/launch/environment.h"
#include "motley/run/torch/exchange/communicator.h"
#include "motley/run/torch/exchange/rendezvous.h"
#include "motley/run/torch/reporter.h"

namespace motley::run {

/// How a worker was asked to take part in a job.
struct WorkerArguments {
  std::string job_path;            ///< "" for a rank that gets the job from rank 0
  std::optional<int> rank;         ///< of a local job
  std::optional<RankPlace> place;  ///< of an external launcher's job
  bool joins = false;              ///< a local job that runs already
};

/// One rank of a job: what it knows, and how it reaches the others. Members are destroyed in the
/// right order (communicator before rendezvous).
struct WorkerSession {
  Job job;
  program::Program program;  ///< empty for a job without one
  /// Of whole batches and of the samples left; empty where the job does not evaluate.
  std::vector<program::Program> evaluations = {};
  int rank = 0, size = 1;
  int process = 0;  ///< number of this process in the job, of whose programs it may be another rank
  /// Source and target of messages beside those of the programs.
  std::vector<std::pair<int, int>> measured_pairs = {};
  int generation = 0;  ///< number of the change that brought this program; 0: it is the job's own
  /// Of programs that count squares of gradients: in every so-many-th step. One for all sessions of
  /// the process. Ranks may hear of another number at different steps: no other needs what one
  /// counts, and steps that not all counted say nothing.
  std::shared_ptr<std::atomic<std::int64_t>> counts_every =
      std::make_shared<std::atomic<std::int64_t>>(1);
  bool is_idle = false;                        ///< the job uses fewer ranks than were started
  bool joins = false;                          ///< the others have begun before
  std::unique_ptr<Rendezvous> rendezvous;      ///< null when the job has one rank
  std::unique_ptr<Communicator> communicator;  ///< null when the job has one rank

  const WorkerDevice& device() const { return job.devices[static_cast<std::size_t>(rank)]; }
  std::vector<std::string> hosts() const;  ///< by rank
  /// Has that rank a run directory of its own, on another machine than rank 0's?
  bool is_elsewhere(int rank) const;
  /// Waits that may include loading files on some ranks.
  Seconds patience() const { return 10 * job.timeout; }
};

/// Reads the job (or fetches it from rank 0), its program, sets up this process's device, and
/// finds the other ranks. Collective.
Result<std::unique_ptr<WorkerSession>> open_session(const WorkerArguments& arguments,
                                                    Reporter& reporter);

/// Threads of the process and, for CUDA, the current device, its memory limit and its precision.
/// (The limit of CPU tensors is the executor's.) A GPU that is named by UUID gets the ordinal that
/// it has here. Before anything parallel runs. Errors: of load_cuda and find_cuda_index.
Result<void> set_up_device(WorkerDevice& device);

/// Whether cuBLAS and cuDNN may round the factors of float32 products to TF32. PyTorch's own choice
/// differs between the two, and by the environment.
void set_tf32(bool may);

/// Do all ranks have GPUs, each its own? NCCL serves no others; they exchange through host memory.
bool can_use_nccl(const std::vector<WorkerDevice>& devices);

/// Joins the groups of the session's program, and the ranks that it sends to and receives from,
/// after all have agreed on what they exchange: different sizes would kill processes. Collective.
Result<void> join_groups(WorkerSession& session);

/// What must be equal on all ranks of a group, or at both ends of a strand, before the first
/// exchange: operators, and sizes where they have to be equal, in order.
using ExchangeSequences = std::map<std::vector<int>, std::string>;  ///< {group}, {source, target}
/// Adds those of one more program of rank `rank`.
void add_sequences(const program::DeviceProgram& program, int rank, ExchangeSequences& sequences);
/// Do all members of each have the same? `of_rank`: by rank; `groups`: of the program. Error
/// run.disagreement that names the first two ranks that do not.
Result<void> compare_sequences(const std::vector<ExchangeSequences>& of_rank,
                               const std::vector<program::Group>& groups);

}  // namespace motley::run
