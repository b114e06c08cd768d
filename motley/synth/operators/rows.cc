// Row numbers: the local ones begin later; indices into local rows begin with 0.

#include "motley/synth/operators/plain.h"
#include "motley/synth/operators/rewrite.h"

namespace motley::synth {
namespace {

/// (end), (start, end), (start, end, step): the local part, with step 1.
void write_arange(RankOperator& op) {
  const Range here = op.rank().own_range(op.result_form(0));
  Arguments made = op.arguments();
  if (op.op().overload.empty()) made.insert(made.begin(), program::Argument{std::int64_t{0}});
  const auto* start = std::get_if<std::int64_t>(&made[0].value);
  const std::int64_t first = (start == nullptr ? 0 : *start) + here.first;
  made[0].value = first;
  made[1].value = first + here.count;
  op.give(0, op.op().overload.empty() ? "aten::arange.start" : op.op().full_name(),
          std::move(made));
}

/// (x, [numbers], ...): indexes local rows by local numbers.
void write_index(RankOperator& op) {
  if (op.part() == 0) return write_nothing(op);
  const graph::Form& rows = op.operand_form(0);
  Arguments made = op.arguments();
  program::Argument& numbers =
      std::get<Arguments>(made[1].value)[static_cast<std::size_t>(rows.dim)];
  const auto global = std::get<BufferId>(numbers.value);
  numbers.value =
      op.call_like(global, "aten::sub.Scalar",
                   {{global}, number(op.rank().own_range(rows).first), {std::int64_t{1}}});
  op.give(0, op.op().full_name(), std::move(made));
}

bool gives_consecutive(const graph::Graph&, const graph::Op&, const graph::Strategy& strategy) {
  return is_consecutive(strategy.results[0]);
}

bool reads_consecutive(const graph::Graph&, const graph::Op&, const graph::Strategy& strategy) {
  return is_consecutive(strategy.operands[0]);
}

}  // namespace

Rewrites rows_rewrites() {
  static constexpr Rewrite kRows[] = {
      {"aten::arange", gives_consecutive, write_arange},
      {"aten::index", reads_consecutive, write_index},
      {"aten::_unsafe_index", reads_consecutive, write_index},
      {"aten::index_put", reads_consecutive, write_index},
      {"aten::_unsafe_index_put", reads_consecutive, write_index},
  };
  return kRows;
}

}  // namespace motley::synth
