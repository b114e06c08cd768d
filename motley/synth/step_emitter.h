#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/program/program.h"
#include "motley/synth/lower.h"
#include "motley/synth/program_builder.h"

namespace motley::synth {

/// Evaluates size expressions; the same ones occur in many operators.
class SizeEvaluator {
 public:
  explicit SizeEvaluator(std::int64_t batch) : sizes_{{"batch", batch}} {}
  graph::Number operator()(const graph::SizeExpr& expr);
  std::int64_t integer(const graph::SizeExpr& expr);
  const graph::Sizes& sizes() const { return sizes_; }

 private:
  graph::Sizes sizes_;
  std::unordered_map<std::string, graph::Number> known_;  // by text
};

program::Argument buffer_argument(BufferId id);
program::Argument number_argument(std::int64_t value);
program::ArgumentList buffer_list(const std::vector<BufferId>& ids);

/// What the lowerings share: the instructions of one device's step that do not depend on how the
/// step is spread.
class StepEmitter {
 protected:
  StepEmitter(const graph::Graph& graph, const LowerOptions& options, program::DeviceProgram start);

  program::Instruction make_named(std::string name, OpId origin) const;
  void compute(std::string op, program::ArgumentList arguments, std::vector<BufferId> outputs,
               std::string label);
  using Define = std::function<BufferId(ValueId)>;  ///< makes the buffer of a result

  /// The tangent and the inputs that operators use, by value.
  void emit_inputs(const std::vector<char>& used);
  /// x seen as [outer, samples, inner], `first` of `global` samples on.
  struct DropoutPlace {
    std::int64_t outer, inner, first, global;
    OpId drawn_by;  ///< the operator of the model whose masks these are
  };
  void emit_dropout_at(OpId id, const program::Argument& x, const program::Argument& p,
                       const DropoutPlace& place, const Define& define);
  /// Batch norm over what all devices have, and its backward pass: channel sums, their exchange,
  /// the rest. `given`: the operator's arguments here.
  struct Channels {
    std::int64_t local;     ///< channels here
    std::int64_t elements;  ///< of each, over all devices
  };
  void emit_batch_norm_over(OpId id, const program::ArgumentList& given, Channels channels,
                            const Define& define);
  void emit_batch_norm_backward_over(OpId id, const program::ArgumentList& given, Channels channels,
                                     const Define& define);
  /// What labels are worth, as f32: over all devices, if each has its own ones, or here.
  /// `labels`: target, class weights, ignored class. Losses over the same labels share it.
  enum class Labels : std::uint8_t { kSpread, kWhole };
  BufferId label_count(OpId origin, program::ArgumentList labels, Labels kind);
  /// A value in another dtype, if need be.
  BufferId converted(BufferId value, DType dtype, OpId origin);
  void emit_quotient(BufferId numerator, BufferId divisor, BufferId quotient, OpId origin);
  /// numerator / divisor into a new buffer; the divisor is a count over the global batch.
  void divide(BufferId numerator, std::int64_t divisor, BufferId quotient, OpId origin);
  /// An input, parameter, buffer or constant of the graph.
  void add_persistent(ValueId id, std::vector<std::int64_t> shape);
  /// The optimizer's states of a parameter, in the parameter's shape here.
  void add_states(ValueId parameter);
  BufferId emit_stop_request();

  /// Parameters of one dtype that are updated together.
  struct Updates {
    std::vector<BufferId> parameters, gradients, state1, state2;
  };
  /// Notes what becomes of one of the graph's outputs, now that its value is what it should be.
  void add_output(std::int64_t index, BufferId value, Updates& updates);
  void emit_update(const Updates& updates, const std::string& label);
  /// The last instructions: new buffers' values, the report. `stop`: whether anybody wants to stop;
  /// none: nobody else is there.
  void emit_end(BufferId stop);

  const graph::Graph& graph_;
  const LowerOptions& options_;
  ProgramBuilder builder_;
  std::vector<BufferId> buffers_;  ///< by value: as its operator gives it

 private:
  BufferId channel_sums(std::string op, program::ArgumentList arguments, std::int64_t channels,
                        OpId origin);

  std::vector<std::vector<BufferId>> states_;  // by parameter
  /// Counts by target, class weights, ignored class, kind.
  std::map<std::tuple<BufferId, BufferId, std::int64_t, Labels>, BufferId> counts_;
  std::vector<std::pair<BufferId, BufferId>> assignments_;
  BufferId loss_;
};

}  // namespace motley::synth
