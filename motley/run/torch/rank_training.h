#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/run/torch/joint_checkpoints.h"
#include "motley/run/torch/rank_feeds.h"

namespace motley::run {

/// One rank's training from the first (or the checkpoint's) step to the last.
class RankTraining {
 public:
  /// Joins the groups. `session` and `reporter` outlive it.
  static Result<std::unique_ptr<RankTraining>> open(WorkerSession& session,
                                                    const Reporter& reporter);

  /// Continues where another program stopped. All ranks of the session.
  static Result<std::unique_ptr<RankTraining>> go_on(WorkerSession& session,
                                                     const Reporter& reporter, Handover handover);

  enum class End { kFinished, kStopped, kChanged };
  /// Trains until step `change_at` or a change requested by request_change (kChanged), or to the
  /// end. Reports every event of docs/formats/job.md except `error` and `change`.
  Result<End> run(std::optional<std::int64_t> change_at = {});
  TrainingPoint point() const;
  /// For a training stopped before its end.
  bool may_end_step() const {
    return tensors_.executor().recovery_state() == Executor::RecoveryState::kReady;
  }
  bool is_in_step() const {
    return tensors_.executor().recovery_state() != Executor::RecoveryState::kBetween;
  }
  /// Completes or undoes a stopped step; then only tensors can be used. Error `run.unsettled`.
  Result<void> settle(std::int64_t steps_done);
  const std::map<std::string, at::Tensor>& persistent() const { return tensors_.persistent(); }
  std::shared_ptr<const graph::Model> model() const { return tensors_.model(); }
  std::shared_ptr<StatusFile> status() const { return status_; }

  // Steps for an external loop (scripted_training.h). All ranks make the same calls.

  const graph::Graph& graph() const { return tensors_.model()->graph; }
  std::int64_t steps_done() const { return at_.step; }
  /// Returns the fields of `ready` that describe where the training continues.
  Json ready_fields() const;
  /// Runs and reports one step on this rank's samples; `lr_factor` multiplies all learning rates.
  Result<StepResult> step(const data::Batch& batch, double lr_factor);
  Result<StepResult> evaluate_batch(std::size_t program, const data::Batch& batch);
  /// Writes a checkpoint of the steps done so far, unless one exists.
  Result<void> checkpoint();
  /// Publishes the model, reports `done` and waits for the others.
  Result<void> end();

  /// Async-signal-safe: all ranks stop after the step in which they agree.
  void request_stop() { tensors_.executor().request_stop(); }
  /// Ends the training's waits here and on the others: `run` fails soon. Any thread.
  void halt();
  /// Makes all ranks change program after the step in which they learn of it. Any thread.
  void request_change() { tensors_.executor().request_change(); }

 private:
  RankTraining(WorkerSession& session, const Reporter& reporter);
  double elapsed_s() const;
  Result<void> open_evaluation();
  Result<Evaluation> run_evaluation();
  Result<void> evaluate();
  Result<void> evaluate_now();
  bool is_over() const;
  bool is_last() const;
  std::int64_t schedule_step() const;
  Result<StepResult> step_on_data();
  Result<void> check_finite(const std::string& what, double value) const;
  Result<void> leave(End end);
  Result<std::optional<End>> close_step(const StepResult& result);
  Result<void> write_trace() const;

  WorkerSession& session_;
  const Reporter& reporter_;
  std::shared_ptr<StatusFile> status_;
  TrainedTensors tensors_;
  JointCheckpoints checkpoints_;
  std::vector<std::unique_ptr<Executor>> evaluators_;  // by program of the session
  RankFeeds feeds_;
  TrainingPoint at_;        // its position, except for what point() adds
  double lr_factor_ = 1;    // of the batch, if it changes
  bool has_begun_ = false;  // reported `ready`
  bool stops_ = false;      // before the next step
  bool owes_ = false;       // work due after the last step may be missing
  std::atomic<bool> is_halted_ = false;
  std::int64_t begun_ns_ = 0;  // when this job's first step began
  std::string resumed_from_;
};

}  // namespace motley::run
