#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "motley/run/torch/order_reader.h"
#include "motley/run/torch/rank_training.h"

namespace motley::run {

/// A training whose plan may change: one generation after another, each with its own program, as
/// ordered (order_reader.h). In each, this process is a rank of the program or idle. Between
/// generations, tensors that are whole stay in place and a separate program moves the rest; the
/// order of samples, random numbers and the schedule continue unchanged.
///
/// In an elastic job, a process that loses others does not end. It reports that it is stalled,
/// receives a halt, reports its position (recovery.h), and receives the point and the program with
/// which all continue. If others are lost meanwhile, it receives another halt.
class RankGenerations {
 public:
  /// `process`: with the job's first program. `on_training`: gets the current training, or null.
  using OnTraining = std::function<void(RankTraining*)>;
  static Result<std::unique_ptr<RankGenerations>> open(WorkerSession& process,
                                                       const Reporter& reporter,
                                                       OnTraining on_training);
  ~RankGenerations();
  RankGenerations(const RankGenerations&) = delete;
  RankGenerations& operator=(const RankGenerations&) = delete;
  /// Reports RankTraining's events, `refused`, and `change` from the first rank of a new program;
  /// in an elastic job also `stalled`, `heard` and `halted`.
  Result<RankTraining::End> run();

 private:
  /// The next generation, whose tensors are here, while others may not have theirs yet.
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
  bool has_left_ = false;  // took part in the move into this generation, in which it is idle
};

}  // namespace motley::run
