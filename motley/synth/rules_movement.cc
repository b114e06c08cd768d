// Rules of operators that move, select or reduce elements along dimensions.

#include <algorithm>
#include <cstdint>
#include <limits>

#include "motley/synth/rules.h"

namespace motley::synth {
namespace {

constexpr char kAlongBatch[] = "it works along the batch";

bool holds(const std::vector<int>& dims, int dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

/// A linear operator that leaves partial sums partial when its only tensor is one.
bool keep_partial(RuleCall& call) {
  if (call.form(0).kind != FormKind::kPartial || call.operands().size() != 1) return false;
  for (int o = 0; o < call.output_count(); ++o)
    if (call.axis(call.output(o)).dim >= 0) return false;
  call.set_all(kPartialForm);
  return true;
}

/// Elements before a dimension, the batch's own outer factor included.
std::int64_t elements_before(const RuleCall& call, ValueId value, int dim) {
  std::int64_t elements = 1;
  for (int d = 0; d < dim; ++d) elements *= call.extent(value, d);
  return elements;
}

/// view: the samples stay apart if the same elements lie before and after them.
bool view_rule(RuleCall& call) {
  if (keep_partial(call)) return true;
  call.sum_all();
  const Form rows = call.form(0);
  if (rows.kind == FormKind::kReplicated) return call.carry_all(rows);
  const ValueId output = call.output(0);
  const BatchAxis& axis = call.axis(output);
  if (axis.dim < 0 || axis.irregular) return call.fail("its result splits or merges samples");
  if (rows.kind == FormKind::kPosition) {
    if (axis.factor != rows.outer * rows.inner) return call.fail("it reshapes row numbers");
    call.set(0, Form{FormKind::kPosition, axis.dim, rows.outer, rows.inner});
    return true;
  }
  if (rows.uniform && (rows.outer * rows.inner) % axis.factor == 0)
    return call.set(0, Form{FormKind::kSharded, axis.dim, 1, axis.factor, true}), true;
  const std::int64_t before = elements_before(call, call.operands()[0].id, rows.dim) * rows.outer;
  const std::int64_t new_before = elements_before(call, output, axis.dim);
  if (new_before == 0 || before % new_before != 0 || axis.factor % (before / new_before) != 0)
    return call.fail("its result splits or merges samples");
  const std::int64_t outer = before / new_before;
  call.set(0, Form{FormKind::kSharded, axis.dim, outer, axis.factor / outer});
  return true;
}

/// Dimensions change places or come and go; each keeps its content.
bool rearrange_rule(RuleCall& call) {
  if (keep_partial(call)) return true;
  call.sum_all();
  const Form rows = call.form(0);
  if (rows.kind != FormKind::kPosition) return call.carry_all(rows);
  call.set(0, Form{FormKind::kPosition, call.axis(call.output(0)).dim, rows.outer, rows.inner});
  return true;
}

/// squeeze of named dimensions; without them a device's single sample would lose its dimension.
bool squeeze_rule(RuleCall& call) {
  if (call.op().overload.empty() && call.form(0).kind == FormKind::kSharded)
    return call.fail("it would squeeze the batch of a device with one sample");
  return rearrange_rule(call);
}

/// Rows made equal from a replicated operand, or none.
bool spread(RuleCall& call) {
  const BatchAxis& axis = call.axis(call.output(0));
  if (axis.irregular) return call.fail("its size is not a multiple of the batch");
  if (axis.dim >= 0) call.set(0, Form{FormKind::kSharded, axis.dim, 1, axis.factor, true});
  return true;
}

bool expand_rule(RuleCall& call) {
  if (keep_partial(call)) return true;
  call.sum_all();
  const Form rows = call.form(0);
  return rows.kind == FormKind::kReplicated ? spread(call) : call.carry_all(rows);
}

/// new_zeros, new_full, ...: the operand gives the dtype only.
bool new_rule(RuleCall& call) { return spread(call); }

/// repeat: whole copies of the rows after each other are one more outer factor.
bool repeat_rule(RuleCall& call) {
  if (keep_partial(call)) return true;
  call.sum_all();
  Form rows = call.form(0);
  if (rows.kind == FormKind::kReplicated) return spread(call);
  rows.outer *= call.axis(call.output(0)).factor / (rows.outer * rows.inner);
  return call.carry_all(rows);
}

/// An operator that acts on the dimension (or dimensions) given at argument `Position`, and on
/// which all sharded operands agree; the batch must not be among them.
template <int Position>
bool along_rule(RuleCall& call) {
  call.sum_all();
  const auto rows = call.merge();
  if (!rows) return false;
  for (const Operand& operand : call.operands()) {
    const Form& form = operand.form;
    const std::vector<int> dims = call.dims(Position, call.rank(operand.id));
    if (form.kind == FormKind::kSharded && holds(dims, form.dim)) return call.fail(kAlongBatch);
    if (form.kind == FormKind::kReplicated && rows->kind == FormKind::kSharded &&
        call.rank(operand.id) > 0)
      return call.fail("it pairs samples with rows that are the same on all devices");
  }
  return call.carry_all(*rows);
}

template <int Position>
bool linear_along_rule(RuleCall& call) {
  return keep_partial(call) || along_rule<Position>(call);
}

/// Several dimensions, the last ones: triangles, padding, pooling, upsampling.
template <int Count>
bool trailing_rule(RuleCall& call) {
  call.sum_all();
  const auto rows = call.merge();
  if (!rows) return false;
  for (const Operand& operand : call.operands())
    if (operand.form.kind == FormKind::kSharded &&
        operand.form.dim >= call.rank(operand.id) - Count)
      return call.fail(kAlongBatch);
  return call.carry_all(*rows);
}

bool triangle_rule(RuleCall& call) { return keep_partial(call) || trailing_rule<2>(call); }

/// Padding of the trailing dimensions that the list at argument 1 names.
bool pad_rule(RuleCall& call) {
  call.sum_all();
  const Form rows = call.form(0);
  const auto* padding = std::get_if<graph::ArgumentList>(&call.argument(1).value);
  const int padded = padding == nullptr ? 0 : static_cast<int>(padding->size() / 2);
  if (rows.kind == FormKind::kSharded && rows.dim >= call.rank(call.operands()[0].id) - padded)
    return call.fail("it pads the batch");
  return call.carry_all(rows);
}

/// Multiple of the batch that a slice bound names; the largest if the bound is beyond the end.
std::optional<std::int64_t> find_multiple(const graph::Argument& bound, std::int64_t factor) {
  if (std::holds_alternative<graph::NoneArgument>(bound.value)) return std::nullopt;
  if (const auto* value = std::get_if<std::int64_t>(&bound.value)) {
    if (*value == 0) return 0;
    if (*value >= std::numeric_limits<std::int32_t>::max()) return factor;
    return std::nullopt;
  }
  const auto* size = std::get_if<graph::SizeArgument>(&bound.value);
  if (size == nullptr) return std::nullopt;
  const std::int64_t at_two = size->expr.evaluate_integer({{"batch", 2}});
  const std::int64_t at_three = size->expr.evaluate_integer({{"batch", 3}});
  if (at_two % 2 != 0 || at_two / 2 * 3 != at_three) return std::nullopt;
  return std::min(at_two / 2, factor);
}

/// Rows that a slice [start, end) of the batch dimension keeps: whole outer blocks only.
std::optional<Form> slice_rows(RuleCall& call, const Form& rows, int first_argument) {
  const std::int64_t factor = rows.outer * rows.inner;
  const graph::Argument& start = call.argument(first_argument);
  const graph::Argument& end = call.argument(first_argument + 1);
  const bool from_zero = std::holds_alternative<graph::NoneArgument>(start.value);
  const bool to_end = std::holds_alternative<graph::NoneArgument>(end.value);
  const auto from = from_zero ? std::optional<std::int64_t>(0) : find_multiple(start, factor);
  const auto to = to_end ? std::optional<std::int64_t>(factor) : find_multiple(end, factor);
  const bool whole_step = call.integer(first_argument + 2).value_or(1) == 1;
  if (!from || !to || !whole_step || *to <= *from || *from % rows.inner != 0 ||
      *to % rows.inner != 0)
    return std::nullopt;
  Form kept = rows;
  kept.outer = (*to - *from) / rows.inner;
  return kept;
}

bool slice_rule(RuleCall& call) {
  if (keep_partial(call)) return true;
  call.sum_all();
  const Form rows = call.form(0);
  const int rank = call.rank(call.operands()[0].id);
  const int dim = call.integer(1) ? call.dims(1, rank)[0] : 0;
  if (rows.kind != FormKind::kSharded || dim != rows.dim) return call.carry_all(rows);
  const auto kept = slice_rows(call, rows, 2);
  return kept ? call.carry_all(*kept) : call.fail("it takes a part of the batch");
}

/// slice_backward(grad, input_sizes, dim, start, end, step), select_backward(grad, input_sizes,
/// dim, index): the gradient goes back to where it came from.
bool slice_backward_rule(RuleCall& call) {
  if (keep_partial(call)) return true;
  call.sum_all();
  Form rows = call.form(0);
  const BatchAxis& axis = call.axis(call.output(0));
  const int dim = call.dims(2, call.rank(call.output(0)))[0];
  if (rows.kind == FormKind::kSharded && dim == axis.dim) {
    if (axis.factor % rows.inner != 0) return call.fail("it takes a part of the batch");
    const Form whole{FormKind::kSharded, dim, axis.factor / rows.inner, rows.inner};
    const auto kept = slice_rows(call, whole, 3);
    if (!kept || kept->outer != rows.outer) return call.fail("it takes a part of the batch");
    rows = whole;
  }
  return call.carry_all(rows);
}

bool select_backward_rule(RuleCall& call) {
  if (keep_partial(call)) return true;
  call.sum_all();
  const Form rows = call.form(0);
  const int dim = call.dims(2, call.rank(call.output(0)))[0];
  if (rows.kind == FormKind::kSharded && dim == call.axis(call.output(0)).dim)
    return call.fail("it takes one row of the batch");
  return call.carry_all(rows);
}

/// split: pieces along another dimension, or whole outer blocks of the batch's.
bool split_rule(RuleCall& call) {
  if (keep_partial(call)) return true;
  call.sum_all();
  const Form rows = call.form(0);
  const int rank = call.rank(call.operands()[0].id);
  const int dim = call.integer(2) ? call.dims(2, rank)[0] : 0;
  if (rows.kind != FormKind::kSharded || dim != rows.dim) return call.carry_all(rows);
  for (int o = 0; o < call.output_count(); ++o) {
    const BatchAxis& axis = call.axis(call.output(o));
    if (axis.dim < 0 || axis.irregular || axis.factor % rows.inner != 0)
      return call.fail("it takes parts of the batch");
    Form piece = rows;
    piece.outer = axis.factor / rows.inner;
    if (!call.carry(o, piece)) return false;
  }
  return true;
}

/// cat: along another dimension, or, of equal forms, more outer blocks of the batch's.
bool cat_rule(RuleCall& call) {
  const bool all_partial =
      std::all_of(call.operands().begin(), call.operands().end(),
                  [](const Operand& operand) { return operand.form.kind == FormKind::kPartial; });
  if (all_partial) return call.set_all(kPartialForm), true;
  call.sum_all();
  auto rows = call.merge();
  if (!rows) return false;
  const int dim = call.dims(1, call.rank(call.output(0)))[0];
  std::int64_t outer = 0;
  bool along_batch = false;
  for (const Operand& operand : call.operands()) {
    if (operand.form.kind != FormKind::kSharded) {
      if (rows->kind == FormKind::kSharded)
        return call.fail("it joins samples with rows that are the same on all devices");
      continue;
    }
    along_batch = along_batch || operand.form.dim == dim;
    outer += operand.form.outer;
  }
  if (along_batch && call.op().name == "aten::cat") rows->outer = outer;
  return call.carry_all(*rows);
}

/// Sums: over the batch they are partial.
bool sum_rule(RuleCall& call) {
  if (call.form(0).kind == FormKind::kPartial) return call.set_all(kPartialForm), true;
  const Form rows = call.form(0);
  const int rank = call.rank(call.operands()[0].id);
  const bool all = call.op().overload.empty();
  if (!all && !holds(call.dims(1, rank), rows.dim)) return call.carry_all(rows);
  call.set_all(kPartialForm);
  return true;
}

/// Means: over the batch, a local sum divided by the global count.
bool mean_rule(RuleCall& call) {
  if (call.form(0).kind == FormKind::kPartial) return call.set_all(kPartialForm), true;
  if (!sum_rule(call)) return false;
  if (call.results()[0].kind == FormKind::kPartial) call.rewrite(Rewrite::kMean);
  return true;
}

/// Other reductions: over any dimension but the batch. `Position` of the dimensions.
template <int Position>
bool reduce_rule(RuleCall& call) {
  call.sum_all();
  const Form rows = call.form(0);
  if (rows.kind == FormKind::kReplicated) return call.carry_all(rows);
  if (call.operands().size() > 1) return elementwise_rule(call);  // max.other: the larger of two
  if (holds(call.dims(Position, call.rank(call.operands()[0].id)), rows.dim))
    return call.fail("it reduces the batch, other than to a sum or a mean");
  return call.carry_all(rows);
}

struct IndexForms {
  Form merged;            ///< of the index tensors that are sharded
  bool at_batch = false;  ///< the indexed tensor's batch dimension is indexed by row numbers
  bool conflict = false;
};

/// Forms of the index list at argument 1 for a tensor of form `self`.
IndexForms find_index_forms(RuleCall& call, const Form& self) {
  IndexForms found;
  const auto* list = std::get_if<graph::ArgumentList>(&call.argument(1).value);
  for (std::size_t d = 0; list != nullptr && d < list->size(); ++d) {
    const auto* id = std::get_if<ValueId>(&(*list)[d].value);
    if (id == nullptr) continue;
    Form form;
    for (const Operand& operand : call.operands())
      if (operand.id == *id) form = operand.form;
    const bool on_batch = self.kind == FormKind::kSharded && static_cast<int>(d) == self.dim;
    const bool counts = form.kind == FormKind::kPosition && self.outer * self.inner == form.inner;
    if (on_batch != (form.kind == FormKind::kPosition) || (on_batch && !counts))
      found.conflict = true;
    if (on_batch) found.at_batch = true;
    if (form.kind == FormKind::kSharded) found.merged = form;
  }
  return found;
}

/// A sharded tensor indexed: by the same index for all samples, or by its own row number first.
bool index_sharded(RuleCall& call, const Form& self) {
  const IndexForms indexes = find_index_forms(call, self);
  if (indexes.conflict) return call.fail("it indexes the batch");
  const bool per_sample = indexes.merged.kind == FormKind::kSharded;
  if (per_sample && !indexes.at_batch)
    return call.fail("it pairs each sample with every other one");
  if (per_sample && (indexes.merged.outer != self.outer || indexes.merged.inner != self.inner))
    return call.fail("its operands hold the batch in different orders");
  Form rows = self;
  rows.uniform = false;
  return call.carry_all(rows);
}

/// index(self, indices)
bool index_rule(RuleCall& call) {
  const bool indexes_are_plain =
      std::all_of(call.operands().begin(), call.operands().end(), [](const Operand& operand) {
        return operand.position == 0 || operand.form.kind == FormKind::kReplicated;
      });
  if (call.form(0).kind == FormKind::kPartial && indexes_are_plain)
    return call.set_all(kPartialForm), true;
  call.sum_all();
  const Form self = call.form(0);
  if (self.kind == FormKind::kSharded) return index_sharded(call, self);
  const IndexForms indexes = find_index_forms(call, self);
  if (indexes.conflict) return call.fail("it indexes the batch");
  return call.carry_all(indexes.merged);
}

bool is_zeros(const RuleCall& call, ValueId value) {
  const OpId producer = call.graph().value(value).producer;
  if (producer.is_none()) return false;
  const graph::Op& op = call.graph().op(producer);
  if (op.name == "aten::zeros" || op.name == "aten::zeros_like" || op.name == "aten::new_zeros")
    return true;
  if (op.name != "aten::full" && op.name != "aten::full_like") return false;
  const auto* whole = std::get_if<std::int64_t>(&op.arguments[1].value);
  const auto* real = std::get_if<double>(&op.arguments[1].value);
  return (whole != nullptr && *whole == 0) || (real != nullptr && *real == 0.0);
}

/// The result of adding rows of samples into a replicated tensor: partial, if it was zero before.
bool accumulate_into_zeros(RuleCall& call) {
  if (!is_zeros(call, call.operands()[0].id))
    return call.fail("it adds samples to a tensor that is the same on all devices and not zero");
  call.set_all(kPartialForm);
  return true;
}

/// index_put(self, indices, values, accumulate)
bool index_put_rule(RuleCall& call) {
  bool by_samples = call.form(2).kind == FormKind::kSharded;
  bool by_position = false;
  for (const Operand& operand : call.operands()) {
    if (operand.position != 1) continue;
    by_position = by_position || operand.form.kind == FormKind::kPosition;
    by_samples = by_samples || operand.form.kind == FormKind::kSharded;
  }
  if (Operand* values = call.operand(2); values != nullptr && by_samples) call.sum(*values);
  const Form self = call.form(0);
  const bool gives_sum = by_samples || call.form(2).kind == FormKind::kPartial;
  if (self.kind != FormKind::kSharded && call.truth(3) && gives_sum) {
    if (by_position) return call.fail("it indexes the batch");
    if (self.kind == FormKind::kReplicated) return accumulate_into_zeros(call);
    return call.set_all(kPartialForm), true;
  }
  call.sum_all();
  if (self.kind != FormKind::kSharded) {
    if (by_samples || by_position)
      return call.fail("it writes samples into a tensor that is the same on all devices");
    return call.carry_all(kReplicatedForm);
  }
  return index_sharded(call, self);
}

/// index_select(self, dim, index)
bool index_select_rule(RuleCall& call) {
  if (call.form(0).kind == FormKind::kPartial && call.form(2).kind == FormKind::kReplicated)
    return call.set_all(kPartialForm), true;
  call.sum_all();
  const Form self = call.form(0);
  const Form index = call.form(2);
  if (self.kind == FormKind::kReplicated) return call.carry_all(index);
  if (index.kind == FormKind::kSharded)
    return call.fail("it pairs each sample with every other one");
  if (call.dims(1, call.rank(call.operands()[0].id))[0] == self.dim)
    return call.fail("it indexes the batch");
  return call.carry_all(self);
}

/// sort(self, dim, descending) and sort.stable(self, stable, dim, descending)
bool sort_rule(RuleCall& call) {
  return call.op().overload == "stable" ? along_rule<2>(call) : along_rule<1>(call);
}

/// scatter_add(self, dim, index, src): samples added into zeros are partial sums.
bool scatter_add_rule(RuleCall& call) {
  const Form source = call.form(3);
  if (call.form(0).kind == FormKind::kReplicated && source.kind == FormKind::kSharded &&
      call.form(2) == source && call.dims(1, call.rank(call.operands()[0].id))[0] == source.dim)
    return accumulate_into_zeros(call);
  return along_rule<1>(call);
}

/// index_add(self, dim, index, source, alpha): samples added into zeros are partial sums.
bool index_add_rule(RuleCall& call) {
  const Form self = call.form(0);
  const Form source = call.form(3);
  if (self.kind == FormKind::kReplicated && source.kind == FormKind::kSharded &&
      call.form(2).kind == FormKind::kSharded && call.dims(1, 1)[0] == source.dim)
    return accumulate_into_zeros(call);
  if (call.form(2).kind != FormKind::kReplicated) return call.fail("it indexes by samples");
  call.sum_all();
  const auto rows = call.merge();
  if (!rows) return false;
  if (rows->kind == FormKind::kSharded &&
      (call.dims(1, call.rank(call.operands()[0].id))[0] == rows->dim ||
       call.form(0).kind == FormKind::kReplicated))
    return call.fail(kAlongBatch);
  return call.carry_all(*rows);
}

constexpr NamedRule kRules[] = {
    {"aten::view", view_rule},
    {"aten::reshape", view_rule},
    {"aten::t", rearrange_rule},
    {"aten::transpose", rearrange_rule},
    {"aten::permute", rearrange_rule},
    {"aten::unsqueeze", rearrange_rule},
    {"aten::squeeze", squeeze_rule},
    {"aten::expand", expand_rule},
    {"aten::repeat", repeat_rule},
    {"aten::new_zeros", new_rule},
    {"aten::new_ones", new_rule},
    {"aten::new_full", new_rule},
    {"aten::new_empty", new_rule},
    {"aten::select", linear_along_rule<1>},
    {"aten::unbind", linear_along_rule<1>},
    {"aten::flip", linear_along_rule<1>},
    {"aten::roll", linear_along_rule<2>},
    {"aten::cumsum", linear_along_rule<1>},
    {"aten::cumprod", along_rule<1>},
    {"aten::logcumsumexp", along_rule<1>},
    {"aten::cummax", along_rule<1>},
    {"aten::cummin", along_rule<1>},
    {"aten::gather", along_rule<1>},
    {"aten::scatter", along_rule<1>},
    {"aten::scatter_add", scatter_add_rule},
    {"aten::scatter_reduce", along_rule<1>},
    {"aten::select_scatter", along_rule<2>},
    {"aten::slice_scatter", along_rule<2>},
    {"aten::topk", along_rule<2>},
    {"aten::kthvalue", along_rule<2>},
    {"aten::mode", along_rule<1>},
    {"aten::median", reduce_rule<1>},
    {"aten::sort", sort_rule},
    {"aten::argsort", sort_rule},
    {"aten::_softmax", along_rule<1>},
    {"aten::_log_softmax", along_rule<1>},
    {"aten::_safe_softmax", along_rule<1>},
    {"aten::_softmax_backward_data", along_rule<2>},
    {"aten::_log_softmax_backward_data", along_rule<2>},
    {"aten::glu", along_rule<1>},
    {"aten::glu_backward", along_rule<2>},
    {"aten::slice", slice_rule},
    {"aten::slice_backward", slice_backward_rule},
    {"aten::select_backward", select_backward_rule},
    {"aten::split", split_rule},
    {"aten::split_with_sizes", split_rule},
    {"aten::cat", cat_rule},
    {"aten::stack", cat_rule},
    {"aten::tril", triangle_rule},
    {"aten::triu", triangle_rule},
    {"aten::constant_pad_nd", pad_rule},
    {"aten::sum", sum_rule},
    {"aten::mean", mean_rule},
    {"aten::max", reduce_rule<1>},
    {"aten::min", reduce_rule<1>},
    {"aten::amax", reduce_rule<1>},
    {"aten::amin", reduce_rule<1>},
    {"aten::any", reduce_rule<1>},
    {"aten::all", reduce_rule<1>},
    {"aten::argmax", reduce_rule<1>},
    {"aten::argmin", reduce_rule<1>},
    {"aten::prod", reduce_rule<1>},
    {"aten::logsumexp", reduce_rule<1>},
    {"aten::var", reduce_rule<1>},
    {"aten::std", reduce_rule<1>},
    {"aten::var_mean", reduce_rule<1>},
    {"aten::std_mean", reduce_rule<1>},
    {"aten::nansum", reduce_rule<1>},
    {"aten::linalg_vector_norm", reduce_rule<2>},
    {"aten::norm", reduce_rule<2>},
    {"aten::index", index_rule},
    {"aten::_unsafe_index", index_rule},
    {"aten::index_put", index_put_rule},
    {"aten::_unsafe_index_put", index_put_rule},
    {"aten::index_select", index_select_rule},
    {"aten::index_add", index_add_rule},
    {"aten::max_pool1d_with_indices", trailing_rule<1>},
    {"aten::max_pool2d_with_indices", trailing_rule<2>},
    {"aten::max_pool2d_with_indices_backward", trailing_rule<2>},
    {"aten::max_pool3d_with_indices", trailing_rule<3>},
    {"aten::max_pool3d_with_indices_backward", trailing_rule<3>},
    {"aten::avg_pool1d", trailing_rule<1>},
    {"aten::avg_pool2d", trailing_rule<2>},
    {"aten::avg_pool2d_backward", trailing_rule<2>},
    {"aten::avg_pool3d", trailing_rule<3>},
    {"aten::avg_pool3d_backward", trailing_rule<3>},
    {"aten::_adaptive_avg_pool2d", trailing_rule<2>},
    {"aten::_adaptive_avg_pool2d_backward", trailing_rule<2>},
    {"aten::adaptive_max_pool2d", trailing_rule<2>},
    {"aten::adaptive_max_pool2d_backward", trailing_rule<2>},
    {"aten::upsample_nearest1d", trailing_rule<1>},
    {"aten::upsample_nearest1d_backward", trailing_rule<1>},
    {"aten::upsample_nearest2d", trailing_rule<2>},
    {"aten::upsample_nearest2d_backward", trailing_rule<2>},
    {"aten::upsample_bilinear2d", trailing_rule<2>},
    {"aten::upsample_bilinear2d_backward", trailing_rule<2>},
    {"aten::upsample_bicubic2d", trailing_rule<2>},
    {"aten::upsample_bicubic2d_backward", trailing_rule<2>},
    {"aten::_upsample_bilinear2d_aa", trailing_rule<2>},
    {"aten::_upsample_bilinear2d_aa_backward", trailing_rule<2>},
    {"aten::reflection_pad1d", trailing_rule<1>},
    {"aten::reflection_pad1d_backward", trailing_rule<1>},
    {"aten::reflection_pad2d", trailing_rule<2>},
    {"aten::reflection_pad2d_backward", trailing_rule<2>},
    {"aten::replication_pad2d", trailing_rule<2>},
    {"aten::replication_pad2d_backward", trailing_rule<2>},
    {"aten::pixel_shuffle", trailing_rule<3>},
    {"aten::pixel_unshuffle", trailing_rule<3>},
};

}  // namespace

std::span<const NamedRule> movement_rules() { return kRules; }

}  // namespace motley::synth
