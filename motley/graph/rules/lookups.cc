// Look-ups, losses, attention, and layers of imported profiles.

#include "motley/graph/rules/rule_builder.h"

namespace motley::graph {
namespace {

/// The reduction argument of a loss: 0 none, 1 mean, 2 sum.
constexpr std::int64_t kNoReduction = 0, kMeanReduction = 1;

// ---- look-ups

/// embedding(table, ids, ...)
bool embedding_rule(RuleBuilder& rule) {
  TensorFactors table = rule.add_factors(rule.operand_shape(0));
  rule.set_split(at(table, 0), Split::kRewritten);
  const TensorFactors ids = rule.add_factors(rule.operand_shape(1));
  TensorFactors result = ids;
  result.push_back(at(table, 1));
  rule.set_operand(1, ids);
  return rule.set_linear(table, result);
}

/// embedding_dense_backward(grad, ids, rows, padding_idx, scale_grad_by_freq)
bool embedding_backward_rule(RuleBuilder& rule) {
  const Split ids_split = rule.truth(4) ? Split::kNever : Split::kPlain;
  const TensorFactors ids = rule.add_factors(rule.operand_shape(1), ids_split);
  TensorFactors table = rule.add_factors(rule.result_shape(0));
  rule.set_split(at(table, 0), Split::kRewritten);
  TensorFactors grad = ids;
  grad.push_back(at(table, 1));
  rule.set_operand(1, ids);
  return rule.set_linear(grad, table);
}

/// index_select(x, dim, index)
bool index_select_rule(RuleBuilder& rule) {
  TensorFactors factors = rule.add_factors(rule.operand_shape(0));
  const auto dim = rule.dim(1, static_cast<int>(factors.size()));
  if (!dim || rule.operand_shape(rule.operand(2)).size() != 1) return false;
  rule.never(at(factors, *dim));
  const TensorFactors places = rule.add_factors(rule.operand_shape(rule.operand(2)));
  TensorFactors taken = factors;
  at(taken, *dim) = places[0];
  rule.set_operand(rule.operand(2), places);
  return rule.set_linear(factors, taken);
}

/// index_add(x, dim, index, source, alpha): adds rows of `source` to those of x.
bool index_add_rule(RuleBuilder& rule) {
  TensorFactors factors = rule.add_factors(rule.operand_shape(0));
  const auto dim = rule.dim(1, static_cast<int>(factors.size()));
  if (!dim || rule.operand_shape(rule.operand(2)).size() != 1) return false;
  rule.never(at(factors, *dim));
  rule.set_operand(0, factors);
  rule.set_result(0, factors);
  const TensorFactors places = rule.add_factors(rule.operand_shape(rule.operand(2)));
  rule.set_operand(rule.operand(2), places);
  at(factors, *dim) = places[0];
  rule.set_operand(rule.operand(3), factors);
  rule.add_term({0});
  rule.add_term({rule.operand(3)});
  return true;
}

/// Returns the dimension of the places if an index tensor holds the rows' own numbers 0, 1, 2, ...;
/// else empty, and the indexed dimension must be whole. x[[0, 1, 2, ...], y] takes one element of
/// each row, so row and place are one factor and each part is indexed by its own numbers.
std::optional<int> row_place(const RuleBuilder& rule, int index, std::int64_t rows,
                             const Shape& places) {
  const Shape& shape = rule.operand_shape(index);
  const auto dim = rule.row_number_dim(index);
  if (!dim || at(shape, *dim) != rows) return std::nullopt;
  const int place = rank_of(places) - rank_of(shape) + *dim;
  return place >= 0 && at(places, place) == rows ? std::optional(place) : std::nullopt;
}

/// A table x and its rows at the index tensors of argument 1, which index adjacent dimensions and
/// broadcast to one shape: x is [before, indexed, after], rows are [before, places, after].
struct IndexFactors {
  TensorFactors table, rows;
};

std::optional<IndexFactors> index_factors(RuleBuilder& rule, const Shape& rows, Split places) {
  const auto* list = std::get_if<SymbolicArguments>(&rule.op().arguments[1].value);
  const std::vector<int> indices = rule.operands_at(1);
  if (list == nullptr || indices.empty()) return std::nullopt;
  IndexFactors made;
  made.table = rule.add_factors(rule.operand_shape(0));
  int first = -1, last = -1;
  for (int d = 0; d < static_cast<int>(list->size()); ++d) {
    if (!std::holds_alternative<ValueId>((*list)[static_cast<std::size_t>(d)].value)) continue;
    if (first < 0) first = d;
    if (last >= 0 && d != last + 1) return std::nullopt;
    last = d;
  }
  const int after = rank_of(rule.operand_shape(0)) - last - 1;
  if (rank_of(rows) < first + after) return std::nullopt;
  const Shape shape(rows.begin() + first, rows.end() - after);
  TensorFactors filled = rule.add_factors(shape, places);
  bool is_shared = false;  // at most one dimension
  for (int i = 0; i < static_cast<int>(indices.size()); ++i) {
    const DimFactors& table = at(made.table, first + i);
    const auto place = row_place(rule, indices[static_cast<std::size_t>(i)],
                                 at(rule.operand_shape(0), first + i), shape);
    const bool shares = place && !is_shared;
    rule.set_split(table, shares ? Split::kRewritten : Split::kNever);
    if (!shares) continue;
    at(filled, *place) = table;
    is_shared = true;
  }
  for (const int index : indices) {
    const auto aligned = rule.broadcast(rule.operand_shape(index), filled);
    if (!aligned || rule.operand_dtype(index) == DType::kBool) return std::nullopt;
    rule.set_operand(index, *aligned);
  }
  made.rows.assign(made.table.begin(), made.table.begin() + first);
  made.rows.insert(made.rows.end(), filled.begin(), filled.end());
  made.rows.insert(made.rows.end(), made.table.end() - after, made.table.end());
  rule.set_operand(0, made.table);
  return made;
}

/// index(x, indices)
bool index_rule(RuleBuilder& rule) {
  const auto made = index_factors(rule, rule.result_shape(0), Split::kPlain);
  if (!made) return false;
  rule.set_result(0, made->rows);
  rule.add_term({0});
  return true;
}

/// index_put(x, indices, values, accumulate): adds, or replaces in an order that matters.
bool index_put_rule(RuleBuilder& rule) {
  const int values = rule.operand(2);
  const auto made = index_factors(rule, rule.operand_shape(values),
                                  rule.truth(3) ? Split::kPlain : Split::kNever);
  if (!made) return false;
  rule.set_operand(values, made->rows);
  rule.set_result(0, made->table);
  rule.add_term({0});
  rule.add_term({values});
  return true;
}

// ---- losses

/// Tensors of one shape; results have it too, or are reduced according to argument `Reduction`.
template <int Reduction>
bool loss_rule(RuleBuilder& rule) {
  const std::int64_t reduction = rule.integer(Reduction).value_or(kMeanReduction);
  const TensorFactors factors = rule.add_factors(
      rule.operand_shape(0), reduction == kMeanReduction ? Split::kMean : Split::kPlain);
  if (!rule.broadcast_operands(factors)) return false;
  rule.set_result(0, reduction == kNoReduction ? factors : TensorFactors{});
  return true;
}

/// (grad, x, target, ...): the gradient of a mean divides by the number of all elements.
template <int Reduction>
bool loss_backward_rule(RuleBuilder& rule) {
  const std::int64_t reduction = rule.integer(Reduction).value_or(kMeanReduction);
  const TensorFactors factors = rule.add_factors(
      rule.result_shape(0), reduction == kMeanReduction ? Split::kMean : Split::kPlain);
  if (!rule.broadcast_operands(factors)) return false;
  rule.set_result(0, factors);
  rule.add_term({0});
  return true;
}

/// _log_softmax(x, dim, ...), and _log_softmax_backward_data(grad, y, dim, ...)
template <int Dim, bool Backward>
bool log_softmax_rule(RuleBuilder& rule) {
  const Shape& shape = rule.operand_shape(0);
  const auto dim = rule.dim(Dim, rank_of(shape));
  TensorFactors factors = rule.add_factors(shape);
  if (dim) rule.set_split(at(factors, *dim), Split::kRewritten);
  for (int i = 0; i < rule.operand_count(); ++i) rule.set_operand(i, factors);
  rule.set_result(0, factors);
  if (Backward) rule.add_term({0});
  return true;
}

/// Factors of log-probabilities [n, c, ...] or [c] and of their targets.
struct ClassFactors {
  TensorFactors x, target, weight;
};
ClassFactors class_factors(RuleBuilder& rule, const Shape& x, Split samples) {
  ClassFactors made;
  made.x = rule.add_factors(x, samples);
  const int classes = x.size() == 1 ? 0 : 1;
  rule.set_split(at(made.x, classes), Split::kRewritten);
  made.weight = {at(made.x, classes)};
  made.target = made.x;
  made.target.erase(made.target.begin() + classes);
  return made;
}

/// nll_loss_forward(x, target, weight, reduction, ignore_index) -> loss, total weight of all
/// samples.
bool nll_rule(RuleBuilder& rule) {
  const std::int64_t reduction = rule.integer(3).value_or(kMeanReduction);
  const ClassFactors made = class_factors(
      rule, rule.operand_shape(0), reduction == kMeanReduction ? Split::kRewritten : Split::kPlain);
  rule.set_operand(0, made.x);
  rule.set_operand(rule.operand(1), made.target);
  rule.set_operand(rule.operand(2), made.weight);
  if (reduction == kNoReduction) rule.set_result(0, made.target);
  // If classes are split, all devices count all targets.
  rule.set_independent(1, made.weight[0][0]);
  if (reduction == kMeanReduction)  // the total weight is counted over all samples first
    for (const DimFactors& dim : made.target) rule.set_independent(1, dim[0]);
  return true;
}

/// nll_loss_backward(grad, x, target, weight, reduction, ignore_index, total_weight (of a mean)).
bool nll_backward_rule(RuleBuilder& rule) {
  const ClassFactors made = class_factors(rule, rule.operand_shape(rule.operand(1)), Split::kPlain);
  const std::int64_t reduction = rule.integer(4).value_or(kMeanReduction);
  const bool is_reduced = reduction != kNoReduction;
  if (reduction != kMeanReduction) rule.ignore(rule.operand(6));
  rule.set_operand(0, is_reduced ? TensorFactors{} : made.target);
  rule.set_operand(rule.operand(1), made.x);
  rule.set_operand(rule.operand(2), made.target);
  rule.set_operand(rule.operand(3), made.weight);
  rule.set_result(0, made.x);
  rule.add_term({0});
  return true;
}

/// motley::ctc_loss(log_probs, targets, input_lengths, target_lengths, blank), split by samples.
bool ctc_loss_rule(RuleBuilder& rule) {
  TensorFactors probabilities = rule.add_factors(rule.operand_shape(0), Split::kNever);
  TensorFactors targets = rule.add_factors(rule.operand_shape(1), Split::kNever);
  const DimFactors samples = at(probabilities, 1);
  rule.set_split(samples, Split::kPlain);
  at(targets, 0) = samples;
  rule.set_operand(0, probabilities);
  rule.set_operand(1, targets);
  rule.set_operand(2, {samples});
  rule.set_operand(3, {samples});
  rule.set_result(0, {samples});
  rule.set_result(1, probabilities);
  return true;
}

// ---- attention

/// motley::attention(q, k, v, mask, dropout, causal, scale) -> out, saved and
/// attention_backward(grad, q, k, v, out, saved, mask, ...) -> of q, k, v. q is [b, g*r, s, d], k
/// [b, g, t, d], v [b, g, t, e]: r queries share a key. Queries under a causal mask depend on their
/// positions and are never split.
template <bool Backward>
bool attention_rule(RuleBuilder& rule) {
  const int first = Backward ? 1 : 0, mask_at = Backward ? 6 : 3;
  const int q = rule.operand(first), k = rule.operand(first + 1), v = rule.operand(first + 2);
  const Shape q_shape = rule.operand_shape(q), k_shape = rule.operand_shape(k);
  if (q_shape.size() != 4 || k_shape.size() != 4 || at(q_shape, 1) % at(k_shape, 1) != 0)
    return false;
  if (rule.number(mask_at + 1).value_or(0) != 0) return false;  // dropout
  const int b = rule.add_factor(at(q_shape, 0));
  const int g = rule.add_factor(at(k_shape, 1));
  const int s =
      rule.add_factor(at(q_shape, 2), rule.truth(mask_at + 2) ? Split::kNever : Split::kPlain);
  const int t = rule.add_factor(at(k_shape, 2), Split::kNever);
  const int d = rule.add_factor(at(q_shape, 3), Split::kNever);
  const int e = rule.add_factor(at(rule.operand_shape(v), 3), Split::kNever);
  DimFactors heads{g};
  if (at(q_shape, 1) != at(k_shape, 1))
    heads.push_back(rule.add_factor(at(q_shape, 1) / at(k_shape, 1)));
  const TensorFactors q_factors{{b}, heads, {s}, {d}}, k_factors{{b}, {g}, {t}, {d}},
      v_factors{{b}, {g}, {t}, {e}}, out_factors{{b}, heads, {s}, {e}},
      saved_factors{{b}, heads, {s}};
  rule.set_operand(q, q_factors);
  rule.set_operand(k, k_factors);
  rule.set_operand(v, v_factors);
  if (const int mask = rule.operand(mask_at); mask >= 0) {
    const auto aligned =
        rule.broadcast(rule.operand_shape(mask), TensorFactors{{b}, heads, {s}, {t}});
    if (!aligned) return false;
    rule.set_operand(mask, *aligned);
  }
  if (!Backward) {
    rule.set_result(0, out_factors);
    rule.set_result(1, saved_factors);
    return true;
  }
  rule.set_operand(0, out_factors);
  rule.set_operand(rule.operand(4), out_factors);
  rule.set_operand(rule.operand(5), saved_factors);
  rule.set_result(0, q_factors);
  rule.set_result(1, k_factors);
  rule.set_result(2, v_factors);
  rule.add_term({0});
  return true;
}

// ---- layers of an imported profile

/// Returns the factors of parameters at argument `list`: [rows, p] is cut by rows, [p] never.
std::vector<TensorFactors> layer_parameters(RuleBuilder& rule, int list, int rows) {
  std::vector<TensorFactors> parameters;
  for (const int operand : rule.operands_at(list)) {
    const Shape& shape = rule.operand_shape(operand);
    TensorFactors factors;
    if (shape.size() == 2) factors.push_back({rows});
    factors.push_back({rule.add_factor(shape.back(), Split::kNever)});
    rule.set_operand(operand, factors);
    parameters.push_back(std::move(factors));
  }
  return parameters;
}

/// motley::layer(x, [parameters], layer, work) -> y, kept [b, rows, n], kept_whole [b, n], and
/// layer_backward(grad, [parameters], kept, kept_whole, layer, work) -> of x, of each parameter.
/// Devices that split the rows have all of x and y; exchanges inside are part of the layer.
template <bool Backward>
bool layer_rule(RuleBuilder& rule) {
  const Shape& x = rule.operand_shape(0);
  const int kept_operand = Backward ? rule.operand(2) : -1;
  const Shape kept = Backward ? rule.operand_shape(kept_operand) : rule.result_shape(1);
  if (x.empty() || kept.size() != 3) return false;
  const int b = rule.add_factor(at(x, 0));
  const int rows = rule.add_factor(at(kept, 1));
  const auto with_samples = [&](const Shape& shape) {
    TensorFactors factors{{b}};
    for (int d = 1; d < rank_of(shape); ++d)
      factors.push_back({rule.add_factor(at(shape, d), Split::kNever)});
    return factors;
  };
  const TensorFactors kept_factors{{b}, {rows}, {rule.add_factor(at(kept, 2), Split::kNever)}};
  rule.set_operand(0, with_samples(x));
  const std::vector<TensorFactors> parameters = layer_parameters(rule, 1, rows);
  if (!Backward) {
    rule.set_result(0, with_samples(rule.result_shape(0)));
    rule.set_result(1, kept_factors);
    rule.set_result(2, with_samples(rule.result_shape(2)));
    rule.set_independent(0, rows);
    rule.set_independent(2, rows);
    return true;
  }
  rule.set_operand(kept_operand, kept_factors);
  rule.set_operand(rule.operand(3), with_samples(rule.operand_shape(rule.operand(3))));
  if (rule.has_result(0)) rule.set_result(0, with_samples(rule.result_shape(0)));
  rule.set_independent(0, rows);
  for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
    const TensorFactors& factors = parameters[static_cast<std::size_t>(i)];
    rule.set_result(i + 1, factors);
    if (factors.size() == 1) rule.set_independent(i + 1, rows);
  }
  return true;
}

constexpr NamedRuleMaker kLookupRules[] = {
    {"aten::embedding", embedding_rule},
    {"aten::embedding_dense_backward", embedding_backward_rule},
    {"aten::index", index_rule},
    {"aten::index_add", index_add_rule},
    {"aten::index_select", index_select_rule},
    {"aten::_unsafe_index", index_rule},
    {"aten::index_put", index_put_rule},
    {"aten::_unsafe_index_put", index_put_rule},
    {"aten::mse_loss", loss_rule<2>},
    {"aten::smooth_l1_loss", loss_rule<2>},
    {"aten::huber_loss", loss_rule<2>},
    {"aten::soft_margin_loss", loss_rule<2>},
    {"aten::binary_cross_entropy", loss_rule<3>},
    {"aten::binary_cross_entropy_with_logits", loss_rule<4>},
    {"aten::mse_loss_backward", loss_backward_rule<3>},
    {"aten::smooth_l1_loss_backward", loss_backward_rule<3>},
    {"aten::huber_loss_backward", loss_backward_rule<3>},
    {"aten::soft_margin_loss_backward", loss_backward_rule<3>},
    {"aten::binary_cross_entropy_backward", loss_backward_rule<4>},
    {"aten::_log_softmax", log_softmax_rule<1, false>},
    {"aten::_log_softmax_backward_data", log_softmax_rule<2, true>},
    {"aten::nll_loss_forward", nll_rule},
    {"aten::nll_loss2d_forward", nll_rule},
    {"aten::nll_loss_backward", nll_backward_rule},
    {"aten::nll_loss2d_backward", nll_backward_rule},
    {"motley::ctc_loss", ctc_loss_rule},
    {"motley::attention", attention_rule<false>},
    {"motley::attention_backward", attention_rule<true>},
    {"motley::layer", layer_rule<false>},
    {"motley::layer_backward", layer_rule<true>},
};

}  // namespace

std::span<const NamedRuleMaker> lookup_rules() { return kLookupRules; }

}  // namespace motley::graph
