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

/// The places of a rank's own files in the job's `rank_files` (docs/formats/job.md).
struct RankFolder {
  std::string path;

  RankFolder(const std::string& rank_files, int rank);
  std::string program() const { return path + "/program.txt"; }
  std::string evaluation(std::size_t which) const;
  std::string weights() const { return path + "/weights.safetensors"; }
  /// Lists the checkpoint files that this host keeps for the rank, to resume from.
  std::string held() const { return path + "/held.json"; }
};

/// What a rank gets instead of a model file: its parts, and what only its evaluations read.
struct RankWeights {
  std::vector<Safetensors> files;  ///< own the memory that the tensors view
  TensorFiles tensors;
  std::string model_file;  ///< hash of the model file that the tensors stem from
  std::int64_t step = 0;   ///< steps done
};
Result<RankWeights> read_rank_weights(const RankFolder& folder);

/// Returns the identity of a model file: a hash of all its bytes.
Result<std::string> hash_model_file(const std::string& path);

Result<program::Program> read_program(const std::string& path);

/// Produces, rank by rank, the files that ranks on other machines need.
class RankFiles {
 public:
  /// Opens a job, whose program was read: evaluations, model file and, if it resumes, checkpoint.
  static Result<RankFiles> open(const Job& job, program::Program program);

  std::string program(Rank rank) const;
  std::size_t evaluations() const { return evaluations_.size(); }
  std::string evaluation(std::size_t which, Rank rank) const;
  /// Leaves out the parts that the rank's host keeps (`held`).
  Result<void> write_weights(Rank rank, const std::string& path) const;
  /// Returns the content of RankFolder::held; none if `kept_folder` holds nothing for the rank.
  std::optional<std::string> held(Rank rank, const std::string& kept_folder) const;
  Result<void> write_model(const std::string& path) const;

  const program::Program& training() const { return program_; }
  const std::vector<program::Program>& evaluating() const { return evaluations_; }
  /// Returns the steps done (samples: taken) in the checkpoint to resume from.
  std::int64_t step() const { return checkpoint_ ? checkpoint_->state.step : 0; }
  std::int64_t samples() const { return checkpoint_ ? checkpoint_->state.samples : 0; }

 private:
  /// Returns the files with the tensor: the checkpoint, else the model file; null: none.
  const TensorFiles* newest_with(const std::string& name) const;

  program::Program program_;
  std::vector<program::Program> evaluations_;
  std::string model_file_;  // hash
  std::shared_ptr<const Safetensors> model_;
  TensorFiles weights_;
  std::optional<Checkpoint> checkpoint_;
};

}  // namespace motley::run
