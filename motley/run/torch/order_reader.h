#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "motley/base/result.h"
#include "motley/run/change.h"
#include "motley/run/torch/rank_training.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {

/// Everything a process needs to continue with another program; prepared during training.
struct Next {
  int number = 0;
  int follows = 0;  ///< the program before
  // Programs outlive the executors.
  std::unique_ptr<WorkerSession> session;  ///< null: the program does not use this device
  std::unique_ptr<WorkerSession> moving;   ///< null: this device has no part in the move
  std::unique_ptr<Executor> mover;
  Handover handover;  ///< without its point
  /// Ends the waits for others in all these sessions. Any thread.
  void halt();
};

/// Opens a session for a program's devices within the process's job, with separate keys. Idle if
/// this device is not among them. `cancelled`: flag that ends its waits for others; null: its own.
Result<std::unique_ptr<WorkerSession>> open_part(
    const WorkerSession& process, const std::string& name, std::vector<WorkerDevice> devices,
    program::Program program, std::vector<program::Program> evaluations,
    std::shared_ptr<std::atomic<bool>> cancelled = nullptr);

/// Reads orders (change.h), one per line, in its own thread. Prepares each in another thread, one
/// at a time, together with the other processes, and requests the change when all are ready. A halt
/// drops the current preparation (its thread may wait for a dead process and is abandoned) and ends
/// the waits of training; then only a recovery is prepared.
class OrderReader {
 public:
  /// The current training's state, unchanged until `take`.
  struct Present {
    std::shared_ptr<const graph::Model> model;  ///< null: not read yet
    std::shared_ptr<StatusFile> status;
    std::map<std::string, at::Tensor> tensors;
    bool leads = false;  ///< this process is the first of the running program
    std::function<void()> request_change;
  };

  /// `process` outlives the object, or the process ends first while a thread waits for orders;
  /// `orders` outlives both. An invalid line ends the process.
  static Result<std::unique_ptr<OrderReader>> start(const WorkerSession& process,
                                                    const Reporter& reporter,
                                                    std::istream& orders = std::cin);
  ~OrderReader();
  void set_present(Present present);
  /// Sets what ends the current waits on a halt; calls it if a halt already came. Null: no waits.
  void set_halt(std::function<void()> halt);
  /// Waits for what all have prepared. Errors: what failed here or elsewhere; run.halted: a halt.
  Result<Next> take(Seconds patience);

  /// Waits for a halt that no call has returned yet. Returns its number.
  Result<int> await_halt(Seconds patience);
  /// Waits for the recovery that follows. Error run.halted: another halt came.
  Result<Recovery> await_recovery(Seconds patience);
  /// For a new process: returns the running program, or the next change's `after`; none: unknown.
  std::optional<int> next_follows();
  /// Tells whether a halt came that no call has returned yet.
  bool is_halted();

 private:
  /// One order in progress; a dropped one ends by itself, unheard.
  struct Preparation {
    ChangeOrder order;
    std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  };
  OrderReader(const WorkerSession& process, const Reporter& reporter)
      : process_(process), reporter_(reporter) {}
  void read(std::istream& orders);
  void obey(ChangeOrder order);
  void halt(int number);
  void begin_next(const std::lock_guard<std::mutex>& lock);
  void prepare(const std::shared_ptr<Preparation>& preparation);
  Result<void> prepare_parts(const Preparation& preparation, const Present& present,
                             Next& next) const;
  Result<void> prepare_move(const Preparation& preparation, const Present& present,
                            Next& next) const;
  Result<void> prepare_program(const Preparation& preparation, const Present& present,
                               Next& next) const;
  static Result<bool> find_parts(const WorkerSession& session);
  Result<void> load_kept(const Recovery& recovery, Next& next) const;
  Result<void> agree(const Preparation& preparation, const Result<void>& own) const;

  const WorkerSession& process_;
  const Reporter& reporter_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Present present_;
  std::function<void()> halt_;
  std::deque<ChangeOrder> orders_;
  std::shared_ptr<Preparation> under_way_;
  std::optional<Result<Next>> next_;
  std::optional<int> follows_;
  std::optional<Recovery> recovery_;  // not requested yet
  int halts_ = 0, known_halts_ = 0;   // ordered; returned by await_halt
  std::thread thread_;
};

}  // namespace motley::run
