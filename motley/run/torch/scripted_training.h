#pragma once

#include "motley/run/torch/rank_training.h"

namespace motley::run {

/// One rank of a training whose loop runs in python/motley/run.py. It provides the samples, sends
/// one command per line on standard input, and reads the results as events:
///
///   memory PATH    a file to map, where this rank's samples will lie (SampleMemory)
///   step FACTOR    one step on the samples there; FACTOR of all learning rates -> step
///   evaluate I     the I-th program of evaluations on the samples there -> evaluated
///   evaluation     result of the evaluations since the last one -> evaluation
///   save           -> saved (path; of all ranks)
///   end            publishes the model -> done
///
/// `ready`, the first event, contains the step to continue from and, for training and each
/// evaluation, the samples, this rank's share of them, and the bytes of each input. The end of
/// standard input ends the training without a checkpoint.
class ScriptedTraining {
 public:
  static Result<std::unique_ptr<ScriptedTraining>> open(WorkerSession& session,
                                                        const Reporter& reporter);
  Result<void> run();

 private:
  ScriptedTraining(WorkerSession& session, const Reporter& reporter)
      : session_(session), reporter_(reporter) {}
  void report_ready() const;
  Result<void> obey(const std::string& line);
  Result<void> map(const std::string& path);
  Result<void> step(const std::string& factor);
  Result<void> evaluate(const std::string& program);
  Result<void> evaluation();
  Result<std::unique_ptr<data::Batch>> batch(const program::Program& program) const;

  WorkerSession& session_;
  const Reporter& reporter_;
  std::unique_ptr<RankTraining> training_;
  std::optional<MappedFile> memory_;
  std::optional<EvaluationSums> sums_;
  bool has_ended_ = false;
};

}  // namespace motley::run
