#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/checkpoints/tensor_files.h"

namespace motley::run {

struct HuggingFaceOptions {
  std::string source;                                ///< folder that the model was exported from
  std::string target;                                ///< a new or empty folder
  std::int64_t shard_bytes = std::int64_t{5} << 30;  ///< limit per file, if tensors fit
};

struct HuggingFaceFolder {
  std::vector<std::string> weights;   ///< files, in order
  std::vector<std::string> left_out;  ///< tied names, which `from_pretrained` fills in
};

/// Writes a trained model as a folder that `from_pretrained` loads.
///
/// Weights keep their state_dict names, which transformers uses too, in model.safetensors or,
/// beyond `shard_bytes`, in shards with model.safetensors.index.json. A name that the source lacks
/// is left out if another tensor is identical: it is tied, and `from_pretrained` ties it again.
/// Copies configuration (with the weights' dtype), tokenizer and other small files, never code or
/// other weights.
///
/// Usage errors (run.hugging-face): the source has no config.json, or the target is in use. Needs
/// memory for the tensors of one shard that ranks wrote in parts.
Result<HuggingFaceFolder> write_hugging_face(const TensorFiles& model,
                                             const HuggingFaceOptions& options);

}  // namespace motley::run
