#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "motley/base/result.h"
#include "motley/run/torch/rank_training.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {

/// All that a process needs to go on by another program, made beside training.
struct Next {
  int number = 0;
  // Programs outlive the executors.
  std::unique_ptr<WorkerSession> session;  ///< null: the program does not use this device
  std::unique_ptr<WorkerSession> moving;   ///< null: this device has no part in the move
  std::unique_ptr<Executor> mover;
  Handover handover;  ///< without its point
};

/// The part of a job that has this process's programs, one after the other: a session of the
/// program's devices, with keys of its own. Idle where this device is none of them.
Result<std::unique_ptr<WorkerSession>> open_part(const WorkerSession& process,
                                                 const std::string& name,
                                                 std::vector<WorkerDevice> devices,
                                                 program::Program program,
                                                 std::vector<program::Program> evaluations);

/// Reads orders (change.h) from standard input in a thread of its own and prepares what they say,
/// one at a time, together with the other processes; asks for the change when all are ready.
class OrderReader {
 public:
  /// What training has at the moment, which stays as it is until `take`.
  struct Present {
    std::shared_ptr<const graph::Model> model;  ///< null: not read yet
    std::shared_ptr<StatusFile> status;
    std::map<std::string, at::Tensor> tensors;
    bool leads = false;  ///< is this process the first of the program that runs?
    std::function<void()> request_change;
  };

  /// `process` outlives the object, or the process ends first: see let_go.
  static Result<std::unique_ptr<OrderReader>> start(const WorkerSession& process,
                                                    const Reporter& reporter);
  ~OrderReader();
  void set_present(Present present);
  /// Waits for what all have prepared. Error: what went wrong with it here or elsewhere.
  Result<Next> take(Seconds patience);

 private:
  OrderReader(const WorkerSession& process, const Reporter& reporter)
      : process_(process), reporter_(reporter) {}
  void read();
  Result<Next> prepare(const std::string& line);
  Result<void> prepare_parts(const std::string& line, const Present& present, Next& next) const;
  Result<void> prepare_move(const ChangeOrder& order, const Present& present, Next& next) const;
  Result<void> prepare_program(const Present& present, Next& next) const;
  Result<void> agree(int number, const Result<void>& own);

  const WorkerSession& process_;
  const Reporter& reporter_;
  std::unique_ptr<Rendezvous> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Present present_;
  std::optional<Result<Next>> next_;
  std::thread thread_;
};

}  // namespace motley::run
