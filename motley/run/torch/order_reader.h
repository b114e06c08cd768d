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

/// All that a process needs to go on by another program, made beside training.
struct Next {
  int number = 0;
  int follows = 0;  ///< the program before
  // Programs outlive the executors.
  std::unique_ptr<WorkerSession> session;  ///< null: the program does not use this device
  std::unique_ptr<WorkerSession> moving;   ///< null: this device has no part in the move
  std::unique_ptr<Executor> mover;
  Handover handover;  ///< without its point
  /// Ends the waits for others of all these sessions. Any thread.
  void halt();
};

/// The part of a job that has this process's programs, one after the other: a session of the
/// program's devices, with keys of its own. Idle where this device is none of them. `cancelled`:
/// of all waits of the part for others (Rendezvous::cancel); null: one of its own.
Result<std::unique_ptr<WorkerSession>> open_part(
    const WorkerSession& process, const std::string& name, std::vector<WorkerDevice> devices,
    program::Program program, std::vector<program::Program> evaluations,
    std::shared_ptr<std::atomic<bool>> cancelled = nullptr);

/// Reads orders (change.h), a line each, in a thread of its own, and has each prepared in another,
/// one at a time, together with the other processes; asks for the change when all are ready. An
/// order to halt drops what is being prepared - its thread may wait for one that died, and is left
/// to itself - and ends what training waits for; then only a recovery is prepared.
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

  /// `process` outlives the object, or the process ends first, with a thread that waits for orders;
  /// `orders` outlive both. A line that is no order ends the process.
  static Result<std::unique_ptr<OrderReader>> start(const WorkerSession& process,
                                                    const Reporter& reporter,
                                                    std::istream& orders = std::cin);
  ~OrderReader();
  void set_present(Present present);
  /// What ends the waits of whatever this process now does, when it is told to halt; at once where
  /// it was told already. Null: nothing waits.
  void set_halt(std::function<void()> halt);
  /// Waits for what all have prepared. Error: what went wrong with it here or elsewhere, or
  /// run.halted: an order to halt came since the last call of await_halt.
  Result<Next> take(Seconds patience);

  /// Waits for an order to halt that no call has returned yet: its number.
  Result<int> await_halt(Seconds patience);
  /// Waits for the recovery that follows. Error run.halted: there is another order to halt.
  Result<Recovery> await_recovery(Seconds patience);
  /// For one who has just come: the program that runs, or that the next change follows on; none:
  /// nobody has said it.
  std::optional<int> next_follows();
  /// Has an order to halt come that no call has returned yet?
  bool is_halted();

 private:
  /// One order under way; what was dropped ends by itself, unheard.
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
  std::optional<Recovery> recovery_;  // that was not asked for yet
  int halts_ = 0, known_halts_ = 0;   // ordered; returned by await_halt
  std::thread thread_;
};

}  // namespace motley::run
