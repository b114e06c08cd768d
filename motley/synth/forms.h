#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"

namespace motley::synth {

/// How the devices of a data-parallel group hold a value.
enum class FormKind : std::uint8_t {
  kReplicated,  ///< the same on all devices
  kSharded,     ///< the rows of each device's own samples
  kPartial,     ///< to be summed over the devices
  kPosition,    ///< row numbers 0, 1, ... counted on each device: only good as an index
  kOwn,         ///< statistics of a device's own samples: only good for the matching backward
};

/// A form. Of a sharded value, dimension `dim` holds the batch: its size is outer*batch*inner, and
/// the row of sample s at (o, i) is (o*batch + s)*inner + i. [batch*64, C] has dim 0, outer 1,
/// inner 64; a sequence-first [16*batch, C] has outer 16, inner 1.
struct Form {
  FormKind kind = FormKind::kReplicated;
  int dim = -1;
  std::int64_t outer = 1, inner = 1;
  bool uniform = false;  ///< all rows are equal, so that any factors with this product will do

  bool operator==(const Form&) const = default;
};

/// The dimension of a value that holds the batch.
struct BatchAxis {
  int dim = -1;             ///< -1: the shape does not depend on the batch
  std::int64_t factor = 0;  ///< the dimension's size is factor*batch
  bool irregular = false;   ///< several dimensions, or a size that is not a multiple of the batch
};

/// How an operator is emitted when its samples are spread over several devices. What each does:
/// docs/algorithms.md, "Lowering".
enum class Rewrite : std::uint8_t {
  kNone,
  kDropout,
  kMean,
  kMeanLoss,
  kMeanLossBackward,
  kNllMean,
  kBatchNorm,
  kBatchNormLocal,
  kBatchNormBackward,
};

struct Treatment {
  Rewrite rewrite = Rewrite::kNone;
  std::vector<ValueId> summed;  ///< partial operands that the operator needs summed
};

/// Forms of all values and treatments of all operators, by id.
struct FormTable {
  std::vector<Form> values;
  std::vector<Treatment> ops;
  std::vector<BatchAxis> axes;
};

/// Does an operator without a rule stop the analysis?
enum class Strictness {
  kExact,    ///< yes: error synth.unsupported, naming operator and module
  kLenient,  ///< no: for a device alone, where only the position of the batch matters
};

/// Gives every value a form by the rules of rules.h, in one pass over the operators.
Result<FormTable> assign_forms(const graph::Graph& graph, plan::BatchNormMode batch_norm,
                               Strictness strictness);

/// "R", "S(0)", "S(0, 16*batch)" (outer 16), "S(0, batch*64)", "P", "position", "own".
std::string print_form(const Form& form);

}  // namespace motley::synth
