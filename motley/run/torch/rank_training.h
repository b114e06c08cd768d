#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/graph/model_file.h"
#include "motley/run/change.h"
#include "motley/run/checkpoint.h"
#include "motley/run/feed/feed.h"
#include "motley/run/hosts/status.h"
#include "motley/run/rank_files.h"
#include "motley/run/torch/handover.h"
#include "motley/run/torch/lanes/executor.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {

/// One rank's training from the first (or the checkpoint's) step to the last. All ranks go through
/// the same stages. Rank 0 reads and writes checkpoints, and sends what it read to the others; but
/// of tensors that are kept in parts each rank reads and writes its own.
class RankTraining {
 public:
  /// `session`, `reporter` outlive it. Joins the groups.
  static Result<std::unique_ptr<RankTraining>> open(WorkerSession& session,
                                                    const Reporter& reporter);

  /// Goes on where another program left off. All ranks of the session.
  static Result<std::unique_ptr<RankTraining>> go_on(WorkerSession& session,
                                                     const Reporter& reporter, Handover handover);

  enum class End { kFinished, kStopped, kChanged };
  /// Trains, until step `change_at` or what request_change asked for (kChanged), or to the end.
  /// Every event of docs/formats/job.md but `error` and `change` is reported here.
  Result<End> run(std::optional<std::int64_t> change_at = {});
  TrainingPoint point() const;
  /// Of a training that has stopped before its end.
  bool may_end_step() const { return executor_->standing() == Executor::Standing::kReady; }
  bool is_in_step() const { return executor_->standing() != Executor::Standing::kBetween; }
  /// Ends or undoes a step that was stopped, so that so many are done; then nothing more can be
  /// done with it but going on from its tensors. Error `run.unsettled`.
  Result<void> settle(std::int64_t steps_done);
  const std::map<std::string, at::Tensor>& persistent() const { return persistent_; }
  std::shared_ptr<const graph::Model> model() const { return model_; }
  std::shared_ptr<StatusFile> status() const { return status_; }

  // What a loop of somebody else's is made of (scripted_training.h). All ranks call the same.

  const graph::Graph& graph() const { return model_->graph; }
  std::int64_t steps_done() const { return next_step_; }
  /// What `ready` says of how the training goes on.
  Json ready_fields() const;
  /// One step on samples of this rank; `lr_factor` of all learning rates. Reports it.
  Result<StepResult> step(const data::Batch& batch, double lr_factor);
  /// By one of the session's programs.
  Result<StepResult> evaluate_batch(std::size_t program, const data::Batch& batch);
  /// Of the steps done so far, unless there is one.
  Result<void> checkpoint();
  /// Publishes the model, says `done`, and waits for the others.
  Result<void> end();

  /// Async-signal-safe: all ranks stop after the step in which they agree.
  void request_stop() { executor_->request_stop(); }
  /// Ends what the training waits for, here and on the others: `run` fails soon. Any thread.
  void halt();
  /// All ranks go on by another program after the step in which they learn of it. Any thread.
  void request_change() { executor_->request_change(); }

 private:
  RankTraining(WorkerSession& session, const Reporter& reporter);
  Result<void> open_model();
  Result<void> load_weights(Executor& executor) const;
  Result<void> open_executor();
  void note_tensors();
  double elapsed_s() const;
  Result<void> open_evaluation();
  Result<void> open_feeds();
  Result<Evaluation> run_evaluation();
  Result<void> evaluate();
  Result<void> evaluate_now();
  bool is_over() const;
  bool is_last() const;
  std::int64_t schedule_step() const;
  Result<void> resume();
  Result<void> load(const Checkpoint& checkpoint);
  Result<void> follow(const std::string& checkpoint);
  Result<void> share_weights();
  Result<StepResult> step_on_data();
  std::optional<Json> mean_squares(const StepResult& result) const;
  Result<void> check_finite(const std::string& what, double value) const;
  CheckpointStore own_store() const;
  bool keeps_own() const;
  Result<WrittenFiles> write_files();
  Result<void> keep_files(WrittenFiles& files) const;
  std::string name_of(int rank) const;
  bool is_elsewhere(int rank) const;
  Result<void> receive_files(const WrittenFiles& files, int rank);
  Result<void> send_files(const WrittenFiles& files);
  Result<std::string> write_checkpoint();
  Result<std::string> finish_checkpoint();
  Result<void> lead_checkpoint();
  Result<void> join_checkpoint();
  Result<void> compare_whole();
  Result<void> finish();
  Result<void> leave(End end);
  Result<std::optional<End>> close_step(const StepResult& result);
  Result<void> write_trace() const;
  CheckpointState state() const;
  const program::DeviceProgram& program() const;

  WorkerSession& session_;
  const Reporter& reporter_;
  CheckpointStore checkpoints_;
  std::shared_ptr<StatusFile> status_;
  std::shared_ptr<const graph::Model> model_;
  std::unique_ptr<Executor> executor_;
  std::map<std::string, at::Tensor> persistent_;       // shared with the executor
  std::map<std::string, program::Part> parts_;         // of persistent tensors that are in parts
  bool has_parts_ = false;                             // has any rank such?
  std::optional<RankWeights> own_weights_;             // in place of the model file's
  std::vector<std::unique_ptr<Executor>> evaluators_;  // by program of the session's
  std::unique_ptr<Feed> samples_, evaluated_;          // of training, of evaluations
  std::int64_t batches_evaluated_ = 0;                 // in one evaluation
  std::optional<Best> best_;
  std::int64_t next_step_ = 0;        // steps done so far
  std::int64_t samples_taken_ = 0;    // by them
  double lr_factor_ = 1;              // of the batch, where it changes
  std::int64_t saved_step_ = -1;      // of the latest checkpoint of this job
  std::int64_t evaluated_step_ = -1;  // of the latest evaluation of this job
  bool has_begun_ = false;            // said `ready`
  bool stops_ = false;                // before the next step
  bool owes_ = false;                 // what is due after the last step may not have been done
  std::atomic<bool> is_halted_ = false;
  std::int64_t begun_ns_ = 0;  // when this job's first step began
  std::string resumed_from_, saved_path_;
};

}  // namespace motley::run
