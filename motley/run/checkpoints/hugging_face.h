#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/checkpoints/tensor_files.h"

namespace motley::run {

/// A model as Hugging Face's transformers keeps it: a folder with config.json and weights.
struct HuggingFaceOptions {
  std::string source;  ///< the folder that the model was exported from
  std::string target;  ///< a new folder, or an empty one
  std::int64_t shard_bytes = std::int64_t{5} << 30;  ///< most of a file, unless a tensor has more
};

/// What was written.
struct HuggingFaceFolder {
  std::vector<std::string> weights;   ///< files, in order
  std::vector<std::string> left_out;  ///< tied names that `from_pretrained` fills in
};

/// Writes a trained model as a folder that `from_pretrained` loads.
///
/// Weights have their state_dict names, which are transformers' own: model.safetensors, or shards
/// with model.safetensors.index.json where they exceed `shard_bytes`. A name that the source's
/// weights do not have is left out where another tensor equals it to the bit: it is tied, and
/// `from_pretrained` ties it again. Configuration, tokenizer and other small files are copied;
/// the configuration's dtype becomes that of the weights. Code is never copied, nor other weights.
///
/// Usage errors: a source without config.json, a target that is in use (run.hugging-face). Needs
/// memory for the tensors of one shard that ranks wrote in parts.
Result<HuggingFaceFolder> write_hugging_face(const TensorFiles& model,
                                             const HuggingFaceOptions& options);

}  // namespace motley::run
