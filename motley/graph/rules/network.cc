// Operators of networks: products, convolutions, pooling, norms, look-ups, losses, attention.

#include <algorithm>

#include "motley/graph/rules/rule_builder.h"

namespace motley::graph {
namespace {

/// The reduction argument of a loss: 0 none, 1 mean, 2 sum.
constexpr std::int64_t kNoReduction = 0, kMeanReduction = 1;

// ---- products

/// Sets the product of operands `a` and `b` with `Batch` common first dimensions: (B m k) (B k n)
/// -> (B m n); mv and dot lack n, or both.
bool set_product(RuleBuilder& rule, int a, int b, int batch) {
  if (a < 0 || b < 0) return false;
  TensorFactors left = rule.add_factors(rule.operand_shape(a));
  TensorFactors right = rule.add_factors(rule.operand_shape(b));
  const int contracted = rank_of(rule.operand_shape(a)) - 1;
  for (int d = 0; d < batch; ++d) at(right, d) = at(left, d);
  at(right, batch) = at(left, contracted);
  TensorFactors result(left.begin(), left.begin() + contracted);
  result.insert(result.end(), right.begin() + batch + 1, right.end());
  rule.set_operand(a, left);
  rule.set_operand(b, right);
  rule.set_result(0, result);
  if (rule.op().arguments[static_cast<std::size_t>(a)] !=
      rule.op().arguments[static_cast<std::size_t>(b)])
    rule.add_term({a, b});
  return true;
}

template <int Batch>
bool product_rule(RuleBuilder& rule) {
  return set_product(rule, rule.operand(0), rule.operand(1), Batch);
}

/// addmm(bias, a, b), baddbmm
template <int Batch>
bool add_product_rule(RuleBuilder& rule) {
  if (!set_product(rule, rule.operand(1), rule.operand(2), Batch)) return false;
  TensorFactors result;
  const TensorFactors left = rule.operand_factors(rule.operand(1));
  const TensorFactors right = rule.operand_factors(rule.operand(2));
  result.assign(left.begin(), left.end() - 1);
  result.push_back(right.back());
  const auto bias = rule.broadcast(rule.operand_shape(rule.operand(0)), result);
  if (!bias) return false;
  rule.set_operand(rule.operand(0), *bias);
  rule.add_term({rule.operand(0)});
  return true;
}

/// _trilinear(a, b, c, lacks_a, lacks_b, lacks_c, summed, ...): a product over common dimensions,
/// some missing in each operand, some summed over.
bool trilinear_rule(RuleBuilder& rule) {
  const auto lists = [&](int argument, int dim) {
    for (int i = 0; i < rule.list_length(argument); ++i)
      if (rule.integer(argument, i) == dim) return true;
    return false;
  };
  TensorFactors common(rule.operand_shape(0).size() +
                       static_cast<std::size_t>(rule.list_length(3)));
  for (int o = 0; o < 3; ++o) {
    const Shape& shape = rule.operand_shape(o);
    TensorFactors own;
    for (int d = 0; d < static_cast<int>(common.size()) && own.size() < shape.size(); ++d) {
      if (lists(3 + o, d)) continue;
      if (at(common, d).empty()) at(common, d) = {rule.add_factor(shape[own.size()])};
      own.push_back(at(common, d));
    }
    rule.set_operand(o, own);
  }
  TensorFactors result;
  for (int d = 0; d < static_cast<int>(common.size()); ++d)
    if (!lists(6, d)) result.push_back(at(common, d));
  rule.set_result(0, result);
  const auto& given = rule.op().arguments;
  if (given[0] != given[1] && given[1] != given[2] && given[0] != given[2])
    rule.add_term({0, 1, 2});
  return true;
}

// ---- convolution and pooling

/// Factors of a convolution of x with w: channels are groups * k in x and groups * p in the result
/// y; w is [groups*p, k, ...], or transposed [groups*k, p, ...].
struct ConvolutionFactors {
  TensorFactors x, w, y;
  DimFactors channels;  ///< of y
  int k = 0;
};

/// `transposed`, `groups`: positions of these arguments.
std::optional<ConvolutionFactors> convolution_factors(RuleBuilder& rule, const Shape& x,
                                                      const Shape& w, const Shape& y,
                                                      int transposed, int groups) {
  if (x.size() < 3) return std::nullopt;
  const std::int64_t group_count = rule.integer(groups).value_or(1);
  const bool swaps = rule.truth(transposed);
  ConvolutionFactors made{rule.add_factors(x), rule.add_factors(w), rule.add_factors(y), {}, 0};
  for (int d = 2; d < rank_of(x); ++d)
    for (TensorFactors* factors : {&made.x, &made.w, &made.y}) rule.never(at(*factors, d));
  at(made.y, 0) = at(made.x, 0);
  made.k = rule.add_factor(at(x, 1) / group_count);
  const int p = rule.add_factor(at(y, 1) / group_count);
  DimFactors in{made.k};
  made.channels = {p};
  if (group_count > 1) {
    const int group = rule.add_factor(group_count);
    in = {group, made.k};
    made.channels = {group, p};
    rule.add_slot(groups, -1, {group});
  }
  at(made.x, 1) = in;
  at(made.y, 1) = made.channels;
  at(made.w, 0) = swaps ? in : made.channels;
  at(made.w, 1) = swaps ? DimFactors{p} : DimFactors{made.k};
  return made;
}

/// convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)
bool convolution_rule(RuleBuilder& rule) {
  const auto made = convolution_factors(rule, rule.operand_shape(0), rule.operand_shape(1),
                                        rule.result_shape(0), 6, 8);
  if (!made) return false;
  rule.set_operand(0, made->x);
  rule.set_operand(1, made->w);
  rule.set_result(0, made->y);
  rule.add_term({0, 1});
  const int bias = rule.operand(2);
  rule.set_operand(bias, {made->channels});
  rule.add_term({bias});
  return true;
}

/// convolution_backward(grad, x, w, bias_sizes, stride, padding, dilation, transposed,
/// output_padding, groups, mask) -> grad of x, of w, of bias
bool convolution_backward_rule(RuleBuilder& rule) {
  const auto made = convolution_factors(rule, rule.operand_shape(1), rule.operand_shape(2),
                                        rule.operand_shape(0), 7, 9);
  if (!made) return false;
  rule.set_operand(0, made->y);
  rule.set_operand(1, made->x);
  rule.set_operand(2, made->w);
  rule.set_result(0, made->x);
  rule.set_result(1, made->w);
  if (rule.has_result(2)) {
    rule.set_result(2, {made->channels});
    rule.set_independent(2, made->k);
  }
  if (rule.list_length(3) == 1 && rule.has_result(2)) rule.add_slot(3, 0, made->channels);
  rule.add_term({0});
  return true;
}

/// All tensors share the first dimensions; the last `Window` are never split. `Linear`: in the
/// first operand.
template <int Window, bool Linear>
bool window_rule(RuleBuilder& rule) {
  const Shape& shape = rule.operand_shape(0);
  const int leading = rank_of(shape) - Window;
  if (leading < 0) return false;
  const TensorFactors shared = rule.add_factors({shape.begin(), shape.begin() + leading});
  const auto like = [&](const Shape& each) {
    TensorFactors made = shared;
    for (int d = leading; d < rank_of(each); ++d)
      made.push_back({rule.add_factor(at(each, d), Split::kNever)});
    return made;
  };
  for (int i = 0; i < rule.operand_count(); ++i) {
    if (rule.operand_shape(i).size() != shape.size()) return false;
    rule.set_operand(i, like(rule.operand_shape(i)));
  }
  for (int r = 0; r < rule.result_count(); ++r) rule.set_result(r, like(rule.result_shape(r)));
  if (Linear) rule.add_term({0});
  return true;
}

/// upsample_*_backward(grad, output size, input size, ...)
template <int Window>
bool upsample_backward_rule(RuleBuilder& rule) {
  if (!window_rule<Window, true>(rule)) return false;
  const TensorFactors leading(rule.operand_factors(0).begin(),
                              rule.operand_factors(0).end() - Window);
  for (int d = 0; d < static_cast<int>(leading.size()); ++d) rule.add_slot(2, d, at(leading, d));
  return rule.list_length(2) == rank_of(rule.result_shape(0));
}

/// im2col(x, ...): [b, c, h, w] -> [b, c*k, places] with k elements per window, and col2im, its
/// inverse. Planes are separate.
template <bool Back>
bool columns_rule(RuleBuilder& rule) {
  const Shape& image = Back ? rule.result_shape(0) : rule.operand_shape(0);
  const Shape& columns = Back ? rule.operand_shape(0) : rule.result_shape(0);
  if (image.size() != 4 || columns.size() != 3 || at(image, 1) == 0) return false;
  TensorFactors planes = rule.add_factors({at(image, 0), at(image, 1)}), taken = planes;
  for (const int d : {2, 3}) planes.push_back({rule.add_factor(at(image, d), Split::kNever)});
  at(taken, 1).push_back(rule.add_factor(at(columns, 1) / at(image, 1), Split::kNever));
  taken.push_back({rule.add_factor(at(columns, 2), Split::kNever)});
  rule.set_operand(0, Back ? taken : planes);
  rule.set_result(0, Back ? planes : taken);
  rule.add_term({0});
  return true;
}

/// grid_sampler_2d(x, grid, ...) of x [b, c, h, w] at places [b, h', w', 2], and its backward(grad,
/// x, grid, ..., mask), where a place's gradient sums over the channels.
template <bool Backward>
bool grid_rule(RuleBuilder& rule) {
  const int x = Backward ? 1 : 0;
  const Shape &image = rule.operand_shape(x), &places = rule.operand_shape(x + 1);
  const TensorFactors from = [&] {
    TensorFactors made = rule.add_factors({at(image, 0), at(image, 1)});
    for (const int d : {2, 3}) made.push_back({rule.add_factor(at(image, d), Split::kNever)});
    return made;
  }();
  TensorFactors grid = rule.add_factors(places);
  at(grid, 0) = at(from, 0);
  rule.never(at(grid, 3));
  const TensorFactors sampled{at(from, 0), at(from, 1), at(grid, 1), at(grid, 2)};
  if (Backward) rule.set_operand(0, sampled);
  rule.set_operand(x, from);
  rule.set_operand(x + 1, grid);
  rule.set_result(0, Backward ? from : sampled);
  if (Backward) rule.set_result(1, grid);
  rule.add_term({0});
  return true;
}

// ---- normalisations

/// Normalises the trailing dimensions, as many as the list at argument `List` has. Weights have
/// only these; statistics have only the others and become those of the whole.
template <int List, bool Backward>
bool layer_norm_rule(RuleBuilder& rule) {
  const Shape& shape = rule.operand_shape(0);
  const int leading = rank_of(shape) - rule.list_length(List);
  if (leading < 0) return false;
  TensorFactors whole = rule.add_factors(shape);
  for (int d = leading; d < rank_of(shape); ++d) {
    rule.set_split(at(whole, d), Split::kRewritten);
    for (int r = 1; !Backward && r < rule.result_count(); ++r)
      rule.set_independent(r, at(whole, d)[0]);
  }
  const TensorFactors weights(whole.begin() + leading, whole.end());
  TensorFactors statistics = whole;
  for (int d = leading; d < rank_of(shape); ++d) at(statistics, d) = {};
  const auto like = [&](const Shape& each) {
    if (each == shape) return whole;
    return each.size() == shape.size() ? statistics : weights;
  };
  for (int i = 0; i < rule.operand_count(); ++i) rule.set_operand(i, like(rule.operand_shape(i)));
  for (int r = 0; r < rule.result_count(); ++r) rule.set_result(r, like(rule.result_shape(r)));
  if (Backward) rule.add_term({0});
  return shape.size() > static_cast<std::size_t>(rule.list_length(List));
}

/// native_group_norm(x, weight, bias, N, C, HxW, groups, eps) -> y, mean, rstd, and
/// native_group_norm_backward(grad, x, mean, rstd, weight, N, C, HxW, groups, mask)
template <bool Backward>
bool group_norm_rule(RuleBuilder& rule) {
  const int sizes = Backward ? 5 : 3;
  const Shape& shape = rule.operand_shape(0);
  const std::int64_t groups = rule.integer(sizes + 3).value_or(0);
  if (groups <= 0 || shape.size() < 2 || at(shape, 1) % groups != 0) return false;
  TensorFactors whole = rule.add_factors(shape, Split::kRewritten);
  rule.set_split(at(whole, 0), Split::kPlain);
  const int group = rule.add_factor(groups);
  const DimFactors channels{group, rule.add_factor(at(shape, 1) / groups, Split::kRewritten)};
  at(whole, 1) = channels;
  for (int d = 1; d < rank_of(shape); ++d)  // statistics become those of the whole
    for (int r = 1; !Backward && r < rule.result_count(); ++r)
      rule.set_independent(r, at(whole, d).back());
  const TensorFactors statistics{at(whole, 0), {group}}, weights{channels};
  for (int i = 0; i < rule.operand_count(); ++i) {
    const std::size_t rank = rule.operand_shape(i).size();
    const bool is_statistic = Backward && (i == rule.operand(2) || i == rule.operand(3));
    rule.set_operand(i, rank == 1 ? weights : is_statistic ? statistics : whole);
  }
  for (int r = 0; r < rule.result_count(); ++r)
    rule.set_result(r, r == 0 ? whole : Backward ? weights : statistics);
  rule.add_slot(sizes, -1, at(whole, 0));
  rule.add_slot(sizes + 1, -1, channels);
  rule.add_slot(sizes + 3, -1, {group});
  if (Backward) rule.add_term({0});
  return true;
}

/// Batch norm of any kind: channels are dimension 1, and the only dimension of weights and
/// statistics. Dimensions that it averages over need other instructions to be split, unless
/// statistics are given. `Training`: argument of the flag; -1: always training, -2: never.
///
/// With statistics of each device's own samples, the saved ones count as whole on each device
/// although they differ: only the backward pass may read them. The running ones are terms: a
/// device's statistics weighted by its part of the samples. Gradients of weights are terms too.
template <int Training, bool Backward>
bool batch_norm_rule(RuleBuilder& rule) {
  const Shape& shape = rule.operand_shape(0);
  if (shape.size() < 2) return false;
  const int flag = rule.op().overload == "no_stats" ? Training - 2 : Training;
  const bool trains = Training == -1 || (Training >= 0 && rule.truth(flag));
  TensorFactors whole = rule.add_factors(shape, trains ? Split::kRewritten : Split::kPlain);
  rule.set_split(at(whole, 1), Split::kPlain);
  const auto like = [&](const Shape& each) {
    if (each == shape) return whole;
    return each.size() == 1 && at(each, 0) == at(shape, 1) ? TensorFactors{at(whole, 1)}
                                                           : rule.add_factors(each, Split::kNever);
  };
  for (int i = 0; i < rule.operand_count(); ++i) rule.set_operand(i, like(rule.operand_shape(i)));
  for (int r = 0; r < rule.result_count(); ++r)
    if (rule.has_result(r)) rule.set_result(r, like(rule.result_shape(r)));
  if (Backward) rule.add_term({0});
  if (Backward)  // reads the saved statistics, or the given running ones
    for (const int unread : {trains ? 3 : 5, trains ? 4 : 6})
      if (rule.operand(unread) >= 0) rule.ignore(rule.operand(unread));
  const bool is_own = trains && rule.statistics() == Statistics::kOwn;
  if (is_own && Backward)
    for (int d = 0; d < rank_of(shape); ++d)
      if (d != 1) rule.set_split(at(whole, d), Split::kPlain);
  // Statistics and their gradients become those of the whole.
  const int saved = rule.op().name == "aten::_batch_norm_with_update_functional" ? 4 : 3;
  const int last = !trains || (is_own && Backward) ? 0 : is_own ? saved : rule.result_count();
  for (std::size_t d = 0; d < whole.size(); ++d)
    for (int r = 1; d != 1 && r < last; ++r) rule.set_independent(r, whole[d][0]);
  return true;
}

/// motley::dropout(x, p, draw): draws belong to elements of the whole.
bool dropout_rule(RuleBuilder& rule) {
  const TensorFactors factors = rule.add_factors(rule.operand_shape(0), Split::kRewritten);
  rule.set_operand(0, factors);
  for (int r = 0; r < rule.result_count(); ++r) rule.set_result(r, factors);
  return true;
}

// ---- look-ups

/// embedding(table, ids, ...)
bool embedding_rule(RuleBuilder& rule) {
  TensorFactors table = rule.add_factors(rule.operand_shape(0));
  rule.set_split(at(table, 0), Split::kRewritten);
  const TensorFactors ids = rule.add_factors(rule.operand_shape(1));
  TensorFactors result = ids;
  result.push_back(at(table, 1));
  rule.set_operand(0, table);
  rule.set_operand(1, ids);
  rule.set_result(0, result);
  rule.add_term({0});
  return true;
}

/// embedding_dense_backward(grad, ids, rows, padding_idx, scale_grad_by_freq)
bool embedding_backward_rule(RuleBuilder& rule) {
  const Split ids_split = rule.truth(4) ? Split::kNever : Split::kPlain;
  const TensorFactors ids = rule.add_factors(rule.operand_shape(1), ids_split);
  TensorFactors table = rule.add_factors(rule.result_shape(0));
  rule.set_split(at(table, 0), Split::kRewritten);
  TensorFactors grad = ids;
  grad.push_back(at(table, 1));
  rule.set_operand(0, grad);
  rule.set_operand(1, ids);
  rule.set_result(0, table);
  rule.add_term({0});
  return true;
}

/// index_select(x, dim, index)
bool index_select_rule(RuleBuilder& rule) {
  TensorFactors factors = rule.add_factors(rule.operand_shape(0));
  const auto dim = rule.dim(1, static_cast<int>(factors.size()));
  if (!dim || rule.operand_shape(rule.operand(2)).size() != 1) return false;
  rule.never(at(factors, *dim));
  const TensorFactors places = rule.add_factors(rule.operand_shape(rule.operand(2)));
  rule.set_operand(0, factors);
  rule.set_operand(rule.operand(2), places);
  at(factors, *dim) = places[0];
  rule.set_result(0, factors);
  rule.add_term({0});
  return true;
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
  for (int i = 0; i < rule.operand_count(); ++i) {
    const auto aligned = rule.broadcast(rule.operand_shape(i), factors);
    if (!aligned) return false;
    rule.set_operand(i, *aligned);
  }
  rule.set_result(0, reduction == kNoReduction ? factors : TensorFactors{});
  return true;
}

/// (grad, x, target, ...): the gradient of a mean divides by the number of all elements.
template <int Reduction>
bool loss_backward_rule(RuleBuilder& rule) {
  const std::int64_t reduction = rule.integer(Reduction).value_or(kMeanReduction);
  const TensorFactors factors = rule.add_factors(
      rule.result_shape(0), reduction == kMeanReduction ? Split::kMean : Split::kPlain);
  for (int i = 0; i < rule.operand_count(); ++i) {
    const auto aligned = rule.broadcast(rule.operand_shape(i), factors);
    if (!aligned) return false;
    rule.set_operand(i, *aligned);
  }
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

constexpr NamedRuleMaker kNetworkRules[] = {
    {"aten::mm", product_rule<0>},
    {"aten::bmm", product_rule<1>},
    {"aten::mv", product_rule<0>},
    {"aten::dot", product_rule<0>},
    {"aten::vdot", product_rule<0>},
    {"aten::addmm", add_product_rule<0>},
    {"aten::baddbmm", add_product_rule<1>},
    {"aten::_trilinear", trilinear_rule},
    {"aten::convolution", convolution_rule},
    {"aten::convolution_backward", convolution_backward_rule},
    {"aten::max_pool2d_with_indices", window_rule<2, false>},
    {"aten::max_pool2d_with_indices_backward", window_rule<2, true>},
    {"aten::avg_pool2d", window_rule<2, true>},
    {"aten::avg_pool2d_backward", window_rule<2, true>},
    {"aten::_adaptive_avg_pool2d", window_rule<2, true>},
    {"aten::_adaptive_avg_pool2d_backward", window_rule<2, true>},
    {"aten::avg_pool1d", window_rule<1, true>},
    {"aten::avg_pool3d", window_rule<3, true>},
    {"aten::avg_pool3d_backward", window_rule<3, true>},
    {"aten::max_pool1d_with_indices", window_rule<1, false>},
    {"aten::max_pool3d_with_indices", window_rule<3, false>},
    {"aten::max_pool3d_with_indices_backward", window_rule<3, true>},
    {"aten::adaptive_max_pool2d", window_rule<2, false>},
    {"aten::adaptive_max_pool2d_backward", window_rule<2, true>},
    {"aten::upsample_nearest1d", window_rule<1, true>},
    {"aten::upsample_nearest1d_backward", upsample_backward_rule<1>},
    {"aten::upsample_nearest2d", window_rule<2, true>},
    {"aten::upsample_nearest2d_backward", upsample_backward_rule<2>},
    {"aten::upsample_bilinear2d", window_rule<2, true>},
    {"aten::upsample_bilinear2d_backward", upsample_backward_rule<2>},
    {"aten::upsample_bicubic2d", window_rule<2, true>},
    {"aten::upsample_bicubic2d_backward", upsample_backward_rule<2>},
    {"aten::_upsample_bilinear2d_aa", window_rule<2, true>},
    {"aten::_upsample_bilinear2d_aa_backward", upsample_backward_rule<2>},
    {"aten::reflection_pad1d", window_rule<1, true>},
    {"aten::reflection_pad1d_backward", window_rule<1, true>},
    {"aten::reflection_pad2d", window_rule<2, true>},
    {"aten::reflection_pad2d_backward", window_rule<2, true>},
    {"aten::replication_pad2d", window_rule<2, true>},
    {"aten::replication_pad2d_backward", window_rule<2, true>},
    {"aten::_adaptive_avg_pool3d", window_rule<3, true>},
    {"aten::_adaptive_avg_pool3d_backward", window_rule<3, true>},
    {"aten::adaptive_max_pool3d", window_rule<3, false>},
    {"aten::adaptive_max_pool3d_backward", window_rule<3, true>},
    {"aten::reflection_pad3d", window_rule<3, true>},
    {"aten::reflection_pad3d_backward", window_rule<3, true>},
    {"aten::replication_pad1d", window_rule<1, true>},
    {"aten::replication_pad1d_backward", window_rule<1, true>},
    {"aten::replication_pad3d", window_rule<3, true>},
    {"aten::replication_pad3d_backward", window_rule<3, true>},
    {"aten::im2col", columns_rule<false>},
    {"aten::col2im", columns_rule<true>},
    {"aten::grid_sampler_2d", grid_rule<false>},
    {"aten::grid_sampler_2d_backward", grid_rule<true>},
    {"aten::pixel_shuffle", window_rule<3, true>},
    {"aten::pixel_unshuffle", window_rule<3, true>},
    {"aten::native_layer_norm", layer_norm_rule<1, false>},
    {"aten::native_layer_norm_backward", layer_norm_rule<2, true>},
    {"aten::_fused_rms_norm", layer_norm_rule<1, false>},
    {"aten::_fused_rms_norm_backward", layer_norm_rule<2, true>},
    {"aten::native_group_norm", group_norm_rule<false>},
    {"aten::native_group_norm_backward", group_norm_rule<true>},
    {"aten::native_batch_norm", batch_norm_rule<5, false>},
    {"aten::_native_batch_norm_legit", batch_norm_rule<5, false>},
    {"aten::_native_batch_norm_legit_functional", batch_norm_rule<5, false>},
    {"aten::_batch_norm_with_update_functional", batch_norm_rule<-1, false>},
    {"aten::_native_batch_norm_legit_no_training", batch_norm_rule<-2, false>},
    {"aten::native_batch_norm_backward", batch_norm_rule<7, true>},
    {"aten::batch_norm_backward", batch_norm_rule<7, true>},
    {"motley::dropout", dropout_rule},
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

std::span<const NamedRuleMaker> network_rules() { return kNetworkRules; }

}  // namespace motley::graph
