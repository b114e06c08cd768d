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
  bool joins = false;              ///< a local job that already runs
};

/// One rank of a job and its connections. The communicator is destroyed before the rendezvous.
struct WorkerSession {
  Job job;
  program::Program program;  ///< empty for a job without one
  /// For whole batches and for the remaining samples; empty if the job does not evaluate.
  std::vector<program::Program> evaluations = {};
  int rank = 0, size = 1;
  int process = 0;  ///< this process's number in the job; its rank in a program may differ
  /// Source and target of messages beside those of the programs.
  std::vector<std::pair<int, int>> measured_pairs = {};
  int generation = 0;  ///< number of the change that brought this program; 0: the job's own
  /// Squares of gradients are counted every so many steps; shared by all sessions of the process.
  /// Ranks may learn of a new number at different steps: steps that not all counted are ignored.
  std::shared_ptr<std::atomic<std::int64_t>> counts_every =
      std::make_shared<std::atomic<std::int64_t>>(1);
  bool is_idle = false;                        ///< the job uses fewer ranks than were started
  bool joins = false;                          ///< the others have begun before
  std::unique_ptr<Rendezvous> rendezvous;      ///< null if the job has one rank
  std::unique_ptr<Communicator> communicator;  ///< null if the job has one rank

  const WorkerDevice& device() const { return job.devices[static_cast<std::size_t>(rank)]; }
  std::vector<std::string> hosts() const;  ///< by rank
  /// Tells whether a rank has its own run directory, on another machine than rank 0's.
  bool is_elsewhere(int rank) const;
  /// Returns the limit for waits that may include loading files on some ranks.
  Seconds patience() const { return 10 * job.timeout; }
};

/// Reads the job (or gets it from rank 0), sets up the device and finds the others. Collective.
Result<std::unique_ptr<WorkerSession>> open_session(const WorkerArguments& arguments,
                                                    Reporter& reporter);

/// Sets the process's threads and, for CUDA, the current device, its memory limit and precision.
/// (The executor limits CPU tensors.) Gives a GPU named by UUID its local ordinal. Must precede
/// anything parallel. Errors: of load_cuda and find_cuda_index.
Result<void> set_up_device(WorkerDevice& device);

/// Sets whether cuBLAS and cuDNN may round the factors of float32 products to TF32. PyTorch's
/// default differs between the two, and by the environment.
void set_tf32(bool may);

/// Tells whether each rank has a GPU of its own. NCCL serves no others; they use host memory.
bool can_use_nccl(const std::vector<WorkerDevice>& devices);

/// Joins the groups of the session's program and connects the ranks of its sends and receives,
/// after all have agreed on the exchanges: different sizes would kill processes. Collective.
Result<void> join_groups(WorkerSession& session);

/// What must be equal on all ranks of a group, or at both ends of a strand, before the first
/// exchange: operators, and sizes that have to match, in order.
using ExchangeSequences = std::map<std::vector<int>, std::string>;  ///< {group}, {source, target}
void add_sequences(const program::DeviceProgram& program, int rank, ExchangeSequences& sequences);
/// Compares each sequence among its members. `of_rank`: by rank; `groups`: of the program. Error
/// run.disagreement names the first two ranks that differ.
Result<void> compare_sequences(const std::vector<ExchangeSequences>& of_rank,
                               const std::vector<program::Group>& groups);

}  // namespace motley::run
