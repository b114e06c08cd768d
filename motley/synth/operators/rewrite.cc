#include "motley/synth/operators/rewrite.h"

#include "motley/base/check.h"
#include "motley/synth/operators/plain.h"

// One word per family; NAME_rewrites() is in the file of that name.
#define MOTLEY_FAMILIES(ADD) \
  ADD(batch_norm)            \
  ADD(losses)                \
  ADD(norms)                 \
  ADD(random)                \
  ADD(rows)                  \
  ADD(variances)             \
  ADD(vocabulary)

namespace motley::synth {

#define MOTLEY_DECLARE(name) Rewrites name##_rewrites();
MOTLEY_FAMILIES(MOTLEY_DECLARE)

namespace {

const Rewrite* find_rewrite(const graph::Graph& graph, const graph::Op& op,
                            const graph::Strategy& strategy) {
#define MOTLEY_CALL(name) name##_rewrites(),
  for (const Rewrites family : {MOTLEY_FAMILIES(MOTLEY_CALL)})
    for (const Rewrite& each : family)
      if (each.name == op.name && each.takes(graph, op, strategy)) return &each;
  return nullptr;
}

}  // namespace

bool can_rewrite(const graph::Graph& graph, const graph::Op& op, const graph::Strategy& strategy) {
  return find_rewrite(graph, op, strategy) != nullptr;
}

void write_operator(RankStep& rank, OpId id) {
  RankOperator op(rank, id);
  const bool is_rewritten = op.split() == graph::Split::kRewritten;
  const Rewrite* rewrite = find_rewrite(rank.graph(), op.op(), op.strategy());
  MOTLEY_CHECK(!is_rewritten || rewrite != nullptr);
  if (rewrite != nullptr && (is_rewritten || rewrite->when == Rewrite::When::kAlways))
    return rewrite->write(op);
  // A term added to a product counts even without a part of the product.
  const bool has_term = (op.op().name == "aten::addmm" || op.op().name == "aten::baddbmm") &&
                        op.strategy().operands.front() == graph::kPartialForm;
  if (op.part() == 0 && !has_term) return write_nothing(op);
  write_plain(op, op.split() == graph::Split::kMean ? op.part() : 1);
}

bool is_consecutive(const graph::Form& form) {
  return form.kind == graph::FormKind::kSharded && form.outer == 1;
}

bool is_single_or_double(const graph::Graph& graph, ValueId value) {
  const DType dtype = graph.value(value).dtype;
  return dtype == DType::kF32 || dtype == DType::kF64;
}

bool is_true(const graph::SymbolicArgument& argument) {
  const auto* value = std::get_if<bool>(&argument.value);
  return value != nullptr && *value;
}

}  // namespace motley::synth
