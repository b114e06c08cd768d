#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/safetensors.h"
#include "motley/program/program.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/run/checkpoints/tensor_files.h"
#include "motley/run/job.h"

namespace motley::run {

/// Where a rank's own files lie in the job's `rank_files` (docs/formats/job.md).
struct RankFolder {
  std::string path;

  RankFolder(const std::string& rank_files, int rank);
  std::string program() const { return path + "/program.txt"; }
  std::string evaluation(std::size_t which) const;
  std::string weights() const { return path + "/weights.safetensors"; }
  /// Which files of a checkpoint this host keeps for the rank, where it goes on from them.
  std::string held() const { return path + "/held.json"; }
};

/// The tensors that a rank is given, instead of a model file: what it keeps in parts, as much as it
/// keeps, and what only its evaluations read. All else comes from rank 0.
struct RankWeights {
  std::vector<Safetensors> files;  ///< whose memory the tensors are views of
  TensorFiles tensors;
  std::string model_file;  ///< hash of the file whose tensors they are or go on from
  std::int64_t step = 0;   ///< steps done
};
Result<RankWeights> read_rank_weights(const RankFolder& folder);

/// What tells a model file from others: of all its bytes.
Result<std::string> hash_model_file(const std::string& path);

/// A program's file.
Result<program::Program> read_program(const std::string& path);

/// What the ranks on other machines need of a job, one by one.
class RankFiles {
 public:
  /// Of the job's program, which was read. Reads its evaluations, its model file and, where it
  /// resumes, its latest checkpoint.
  static Result<RankFiles> open(const Job& job, program::Program program);

  std::string program(Rank rank) const;
  std::size_t evaluations() const { return evaluations_.size(); }
  std::string evaluation(std::size_t which, Rank rank) const;
  /// Without the parts that the rank's host keeps (held).
  Result<void> write_weights(Rank rank, const std::string& path) const;
  /// RankFolder::held of a rank, whose host keeps files in a folder; nothing where it has none.
  std::optional<std::string> held(Rank rank, const std::string& kept_folder) const;
  /// The model file without its tensors.
  Result<void> write_model(const std::string& path) const;

  const program::Program& training() const { return program_; }
  const std::vector<program::Program>& evaluating() const { return evaluations_; }
  /// Steps done, of the checkpoint that is gone on from.
  std::int64_t step() const { return checkpoint_ ? checkpoint_->state.step : 0; }
  std::int64_t samples() const { return checkpoint_ ? checkpoint_->state.samples : 0; }  ///< taken

 private:
  /// The checkpoint's tensors, or else the model file's; null: none has it.
  const TensorFiles* newest_with(const std::string& name) const;

  program::Program program_;
  std::vector<program::Program> evaluations_;
  std::string model_file_;  // its hash
  std::shared_ptr<const Safetensors> model_;
  TensorFiles weights_;
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace motley::run
