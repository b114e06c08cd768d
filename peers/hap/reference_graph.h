#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/result.h"

namespace motley::peers {

using TensorId = Id<struct ReferenceTensorTag>;

enum class TensorRole {
  kInput,      ///< each device may load all of it or a slice, at no cost
  kParameter,  ///< also a buffer: loaded at no cost; a whole copy's gradient is summed
  kActivation,
};

struct ReferenceTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< of the whole tensor; empty for a scalar
  TensorRole role = TensorRole::kActivation;
  bool communicatable = false;  ///< only an activation may change its form after it is made
};

/// One operator of a forward pass on one device.
struct ReferenceOperator {
  std::string kind;                   ///< by which rules are looked up: "linear", "bsd,bsec->becd"
  std::vector<TensorId> inputs;       ///< in the order that the rules of this kind expect
  std::vector<TensorId> outputs;      ///< activations that no other operator makes
  std::vector<std::int64_t> numbers;  ///< what is not a tensor: dimensions to transpose, ...
};

/// The forward pass of one training step on one device: what a distributed program must compute.
struct ReferenceGraph {
  std::vector<ReferenceTensor> tensors;
  std::vector<ReferenceOperator> operators;  ///< an activation's maker precedes its readers
  TensorId loss;                             ///< a scalar, summed over the samples
};

/// Elements of the whole tensor; 1 for a scalar.
double element_count(const ReferenceTensor& tensor);
/// Of all parameters and buffers.
double parameter_elements(const ReferenceGraph& graph);

/// What must hold of any graph: ids in range, dimensions >= 1, at most HapForm::kMaxRank of them,
/// one maker for each activation and none for others, makers first, a loss that is made. Usage
/// error (search.hap-graph) that names the operator or tensor.
Result<void> verify(const ReferenceGraph& graph);

}  // namespace motley::peers
