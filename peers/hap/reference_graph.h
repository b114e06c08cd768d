#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/result.h"

namespace motley::peers {

using TensorId = Id<struct ReferenceTensorTag>;

enum class TensorRole {
  kInput,      ///< each device may load all or a slice, for free
  kParameter,  ///< also a buffer: loads are free; a whole copy's gradient is summed
  kActivation,
};

struct ReferenceTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< of the whole tensor; empty for a scalar
  TensorRole role = TensorRole::kActivation;
  bool communicatable = false;  ///< only such an activation may change its form
};

/// One operator of a forward pass on one device.
struct ReferenceOperator {
  std::string kind;                   ///< selects the rules: "linear", "bsd,bsec->becd"
  std::vector<TensorId> inputs;       ///< in the order of the kind's rules
  std::vector<TensorId> outputs;      ///< activations made by no other operator
  std::vector<std::int64_t> numbers;  ///< other arguments: dimensions to transpose, ...
};

/// The forward pass of one training step on one device: what a distributed program computes.
struct ReferenceGraph {
  std::vector<ReferenceTensor> tensors;
  std::vector<ReferenceOperator> operators;  ///< producers before their readers
  TensorId loss;                             ///< a scalar, summed over the samples
};

/// Counts the whole tensor's elements; 1 for a scalar.
double element_count(const ReferenceTensor& tensor);
/// Counts those of all parameters and buffers.
double parameter_elements(const ReferenceGraph& graph);

/// Checks ids, dimensions >= 1 (at most HapForm::kMaxRank), one producer per activation and none
/// for others, before its readers, a loss. Usage error (search.hap-graph) with operator or tensor.
Result<void> verify(const ReferenceGraph& graph);

}  // namespace motley::peers
