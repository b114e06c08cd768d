#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "motley/run/torch/order_reader.h"
#include "motley/run/torch/rank_training.h"

namespace motley::run {

/// A training whose plan may change: a generation by one program after another, as orders say
/// (order_reader.h). In each this process is a rank of the program, or idle until the next. Between
/// two generations tensors that are whole stay where they are, and a program of its own moves the
/// rest; order of samples, random numbers and schedule go on as if nothing had been.
///
/// Of an elastic job a process that loses others does not end: it says that it is stalled, is told
/// to halt, says where it stands (recovery.h), is told from where all go on and by which program.
/// Others may be lost in the middle of that: then it is told to halt once more.
class RankGenerations {
 public:
  /// `process`: with the job's first program. `on_training`: told which training runs now; null
  /// while none does.
  using OnTraining = std::function<void(RankTraining*)>;
  static Result<std::unique_ptr<RankGenerations>> open(WorkerSession& process,
                                                       const Reporter& reporter,
                                                       OnTraining on_training);
  ~RankGenerations();
  RankGenerations(const RankGenerations&) = delete;
  RankGenerations& operator=(const RankGenerations&) = delete;
  /// Events: those of RankTraining; `change` of the first rank of a new program; `refused`;
  /// `stalled`, `heard` and `halted` of an elastic job.
  Result<RankTraining::End> run();

 private:
  /// The next generation, whose tensors lie here already, while not all are known to have theirs.
  struct Entering {
    Next next;
    std::unique_ptr<RankTraining> training;
  };
  RankGenerations(WorkerSession& process, const Reporter& reporter, OnTraining on_training)
      : process_(process), reporter_(reporter), on_training_(std::move(on_training)) {}
  void show_present();
  std::optional<std::int64_t> given_step() const;
  Result<Json> wait_word();
  Result<std::optional<RankTraining::End>> generation();
  Result<void> change(const Json& word);
  Result<void> go_on(Next next, TrainingPoint point, bool after_loss);
  void enter();
  void let_go(std::unique_ptr<WorkerSession> one, std::unique_ptr<WorkerSession> other);
  bool may_recover(const Error& error) const;
  Result<void> recover(const Error& error);
  RecoveryState recovery_state() const;
  Result<void> settle(const Recovery& recovery);
  Result<RankTraining::End> end(RankTraining::End end);
  bool is_lead() const { return session_ && !session_->is_idle && session_->rank == 0; }
  Result<void> tell(const Json& word);

  WorkerSession& process_;
  const Reporter& reporter_;
  OnTraining on_training_;
  std::unique_ptr<OrderReader> orders_;
  std::shared_ptr<StatusFile> status_;
  std::shared_ptr<const graph::Model> model_;
  int number_ = 0;                          // of the generation
  std::unique_ptr<WorkerSession> session_;  // of its program
  std::unique_ptr<RankTraining> training_;  // null: idle
  TrainingPoint point_;                     // where it began
  std::optional<Entering> entering_;
  std::thread letting_go_;
  bool has_left_ = false;  // had a part in the move into this generation, in which it is idle
};

}  // namespace motley::run
