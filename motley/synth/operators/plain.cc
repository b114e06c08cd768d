#include "motley/synth/operators/plain.h"

#include <utility>

#include "motley/graph/work.h"

namespace motley::synth {

void write_plain(RankOperator& op, double weight) {
  write_weighed(op, weight, [&](std::size_t) { return weight != 1; });
}

void write_weighed(RankOperator& op, double weight, const IsWeighed& is_weighed) {
  program::Instruction made;
  made.op = op.op().name;
  made.overload = op.op().overload;
  made.arguments = op.arguments();
  made.returns_list = op.op().returns_list;
  made.label = op.op().module;
  made.origin = op.id();
  const BufferId base = graph::is_view(made.op) ? first_buffer(made.arguments) : BufferId();
  std::vector<std::pair<BufferId, BufferId>> weighed;  // raw, result
  for (std::size_t r = 0; r < op.op().outputs.size(); ++r) {
    const BufferId result = op.define(r, base);
    made.outputs.push_back(is_weighed(r) ? op.builder().add_like(result) : result);
    if (is_weighed(r)) weighed.emplace_back(made.outputs.back(), result);
  }
  op.builder().compute(std::move(made));
  for (const auto& [raw, result] : weighed)
    op.write("aten::mul.Scalar", {{raw}, number(weight)}, {result});
}

void write_nothing(RankOperator& op) {
  op.arguments();
  for (std::size_t r = 0; r < op.op().outputs.size(); ++r) {
    const BufferId made = op.define(r);
    if (op.dtype(r) == DType::kNone) continue;
    op.builder().compute("aten::zeros", zeros_arguments(op.result_shape(r), op.dtype(r)), {made},
                         op.op().module);
  }
}

}  // namespace motley::synth
