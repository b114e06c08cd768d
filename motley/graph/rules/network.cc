// Operators of networks: products, convolutions, pooling, norms.

#include <algorithm>

#include "motley/graph/rules/rule_builder.h"

namespace motley::graph {
namespace {

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
  return rule.set_linear(Back ? taken : planes, Back ? planes : taken);
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
  rule.set_all(like);
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
};

}  // namespace

std::span<const NamedRuleMaker> network_rules() { return kNetworkRules; }

}  // namespace motley::graph
