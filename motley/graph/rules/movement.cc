// Operators that move, select, join or reduce elements along dimensions, or make tensors.

#include <algorithm>
#include <limits>

#include "motley/base/dtype.h"
#include "motley/graph/draws.h"
#include "motley/graph/rules/rule_builder.h"

namespace motley::graph {
namespace {

bool holds(const std::vector<int>& dims, int dim) {
  return std::find(dims.begin(), dims.end(), dim) != dims.end();
}

/// Returns the products of the sizes up to and including each dimension.
Shape ends_of(const Shape& shape) {
  Shape ends;
  std::int64_t product = 1;
  for (const std::int64_t size : shape) ends.push_back(product *= size);
  return ends;
}

/// view: cuts both shapes at the ends of all their dimensions, as far as these divide one another.
/// Between two common ends where they do not, nothing can be split.
///
/// [6, 4] to [2, 12]: ends 6, 24 and 2, 24, so cuts at 2, 6, 24: (a*b c) -> (a b*c).
bool view_rule(RuleBuilder& rule) {
  const Shape& from = rule.operand_shape(0);
  const Shape& to = rule.result_shape(0);
  TensorFactors from_factors(from.size()), to_factors(to.size());
  const Shape from_ends = ends_of(from), to_ends = ends_of(to);
  const bool is_empty = !from.empty() && from_ends.back() == 0;
  std::size_t i = 0, j = 0;
  std::int64_t common = 1;
  while (!is_empty && (i < from.size() || j < to.size())) {
    // Takes dimensions on both sides up to a common end.
    const std::size_t first_i = i, first_j = j;
    Shape cuts;
    while (true) {
      const std::int64_t end_i = i > first_i ? from_ends[i - 1] : common;
      const std::int64_t end_j = j > first_j ? to_ends[j - 1] : common;
      if (end_i == end_j && (i > first_i || j > first_j)) break;
      if (i < from.size() && (end_i <= end_j || j == to.size())) {
        cuts.push_back(from_ends[i++]);
      } else if (j < to.size()) {
        cuts.push_back(to_ends[j++]);
      } else {
        return false;
      }
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    bool divide = true;
    for (std::size_t c = 1; c < cuts.size(); ++c) divide = divide && cuts[c] % cuts[c - 1] == 0;
    if (!divide) {
      for (std::size_t d = first_i; d < i; ++d)
        from_factors[d] = {rule.add_factor(from[d], Split::kNever)};
      for (std::size_t d = first_j; d < j; ++d)
        to_factors[d] = {rule.add_factor(to[d], Split::kNever)};
    } else {
      std::int64_t before = common;
      for (const std::int64_t cut : cuts) {
        if (cut == before) continue;
        const int factor = rule.add_factor(cut / before);
        before = cut;
        const auto owner = [&](const Shape& ends, std::size_t first) {
          std::size_t d = first;
          while (ends[d] < cut) ++d;
          return d;
        };
        from_factors[owner(from_ends, first_i)].push_back(factor);
        to_factors[owner(to_ends, first_j)].push_back(factor);
      }
    }
    common = cuts.empty() ? common : cuts.back();
  }
  if (is_empty) {
    from_factors = rule.add_factors(from, Split::kNever);
    to_factors = rule.add_factors(to, Split::kNever);
  }
  rule.add_shape_slots(1, to_factors);
  return rule.set_linear(from_factors, to_factors);
}

/// Sets dimension d of the result to dimension order[d] of the operand.
bool permuted(RuleBuilder& rule, const std::vector<int>& order) {
  TensorFactors from = rule.add_factors(rule.operand_shape(0)), to;
  for (const int dim : order) to.push_back(at(from, dim));
  return rule.set_linear(from, to);
}

std::vector<int> in_order(int rank) {
  std::vector<int> order;
  for (int d = 0; d < rank; ++d) order.push_back(d);
  return order;
}

bool t_rule(RuleBuilder& rule) {
  std::vector<int> order = in_order(rank_of(rule.operand_shape(0)));
  std::reverse(order.begin(), order.end());
  return permuted(rule, order);
}

bool transpose_rule(RuleBuilder& rule) {
  const int rank = rank_of(rule.operand_shape(0));
  std::vector<int> order = in_order(rank);
  const auto a = rule.dim(1, rank), b = rule.dim(2, rank);
  if (!a || !b) return rank == 0 && permuted(rule, order);
  std::swap(order[static_cast<std::size_t>(*a)], order[static_cast<std::size_t>(*b)]);
  return permuted(rule, order);
}

bool permute_rule(RuleBuilder& rule) {
  return permuted(rule, rule.dims(1, rank_of(rule.operand_shape(0))));
}

/// unsqueeze, squeeze: dimensions of a size other than 1 keep their order.
bool squeeze_rule(RuleBuilder& rule) {
  const auto wide = [](const Shape& shape) {
    std::vector<int> dims;
    for (int d = 0; d < rank_of(shape); ++d)
      if (at(shape, d) != 1) dims.push_back(d);
    return dims;
  };
  const Shape &from = rule.operand_shape(0), &to = rule.result_shape(0);
  const std::vector<int> from_dims = wide(from), to_dims = wide(to);
  if (from_dims.size() != to_dims.size()) return false;
  // squeeze without dimensions would drop one in which a device has a single element.
  const bool drops_any = rule.op().overload.empty() && rule.op().name == "aten::squeeze";
  TensorFactors from_factors(from.size()), to_factors(to.size());
  for (std::size_t i = 0; i < from_dims.size(); ++i) {
    const int factor =
        rule.add_factor(at(from, from_dims[i]), drops_any ? Split::kNever : Split::kPlain);
    at(from_factors, from_dims[i]) = at(to_factors, to_dims[i]) = {factor};
  }
  return rule.set_linear(from_factors, to_factors);
}

bool expand_rule(RuleBuilder& rule) {
  const TensorFactors to = rule.add_factors(rule.result_shape(0));
  const auto from = rule.broadcast(rule.operand_shape(0), to);
  if (!from) return false;
  rule.add_shape_slots(1, to);
  return rule.set_linear(*from, to);
}

bool repeat_rule(RuleBuilder& rule) {
  const Shape &from = rule.operand_shape(0), &to = rule.result_shape(0);
  TensorFactors from_factors = rule.add_factors(from), to_factors(to.size());
  const int added = rank_of(to) - rank_of(from);
  for (int d = 0; d < rank_of(to); ++d) {
    const std::int64_t times = rule.integer(1, d).value_or(1);
    if (times != 1) {
      const int copies = rule.add_factor(times);
      at(to_factors, d) = {copies};
      rule.add_slot(1, d, {copies});
    }
    if (d >= added)
      for (const int id : at(from_factors, d - added)) at(to_factors, d).push_back(id);
  }
  return rule.set_linear(from_factors, to_factors);
}

/// view_as_real, view_as_complex: one side ends in a dimension of real and imaginary part.
bool parts_of_complex_rule(RuleBuilder& rule) {
  const auto pair_of = [&](TensorFactors factors) {
    factors.push_back({rule.add_factor(2, Split::kNever)});
    return factors;
  };
  const bool joins = is_complex(rule.result_dtype(0));
  const TensorFactors numbers =
      rule.add_factors(joins ? rule.result_shape(0) : rule.operand_shape(0));
  return rule.set_linear(joins ? pair_of(numbers) : numbers, joins ? numbers : pair_of(numbers));
}

// ---- parts of a dimension

/// Returns whether rows [start, start + count) are one of equal blocks of a dimension of `size`.
bool is_block(std::int64_t size, std::int64_t start, std::int64_t count) {
  return count > 0 && size % count == 0 && start % count == 0;
}

struct Range {
  std::int64_t start, count;
};

/// Returns the rows of a slice's arguments; empty for a step other than 1.
std::optional<Range> slice_range(const RuleBuilder& rule, int first_argument, std::int64_t size) {
  if (rule.integer(first_argument + 2).value_or(1) != 1) return std::nullopt;
  const auto place = [&](std::int64_t index) {
    return std::clamp<std::int64_t>(index < 0 ? index + size : index, 0, size);
  };
  const std::int64_t start = place(rule.integer(first_argument).value_or(0));
  const std::int64_t end =
      place(rule.integer(first_argument + 1).value_or(std::numeric_limits<std::int64_t>::max()));
  return Range{start, std::max<std::int64_t>(0, end - start)};
}

/// Returns the factors of a dimension `whole` and of its rows `range`: (blocks!, f) and (f).
std::pair<DimFactors, DimFactors> cut_block(RuleBuilder& rule, std::int64_t whole,
                                            const std::optional<Range>& range,
                                            std::int64_t part_size, int start_argument) {
  if (!range || !is_block(whole, range->start, range->count))
    return {{rule.add_factor(whole, Split::kNever)}, {rule.add_factor(part_size, Split::kNever)}};
  const int part = rule.add_factor(range->count);
  rule.add_slot(start_argument, -1, {part}, range->start / range->count);
  rule.add_slot(start_argument + 1, -1, {part}, range->start / range->count + 1);
  if (whole == range->count) return {{part}, {part}};
  return {{rule.add_factor(whole / range->count, Split::kNever), part}, {part}};
}

/// slice(x, dim, start, end, step)
bool slice_rule(RuleBuilder& rule) {
  const Shape& from = rule.operand_shape(0);
  const int dim = rule.dim(1, rank_of(from)).value_or(0);
  TensorFactors from_factors = rule.add_factors(from), to_factors = from_factors;
  const auto range = slice_range(rule, 2, at(from, dim));
  std::tie(at(from_factors, dim), at(to_factors, dim)) =
      cut_block(rule, at(from, dim), range, at(rule.result_shape(0), dim), 2);
  return rule.set_linear(from_factors, to_factors);
}

/// slice_backward(grad, input_sizes, dim, start, end, step)
bool slice_backward_rule(RuleBuilder& rule) {
  const Shape& to = rule.result_shape(0);
  const auto dim = rule.dim(2, rank_of(to));
  if (!dim) return false;
  TensorFactors to_factors = rule.add_factors(to), from_factors = to_factors;
  const auto range = slice_range(rule, 3, at(to, *dim));
  std::tie(at(to_factors, *dim), at(from_factors, *dim)) =
      cut_block(rule, at(to, *dim), range, at(rule.operand_shape(0), *dim), 3);
  rule.add_shape_slots(1, to_factors);
  return rule.set_linear(from_factors, to_factors);
}

/// select(x, dim, index), unbind(x, dim): drop one dimension.
bool drop_rule(RuleBuilder& rule) {
  const Shape& from = rule.operand_shape(0);
  const auto dim = rule.dim(1, rank_of(from));
  if (!dim) return false;
  TensorFactors factors = rule.add_factors(from);
  rule.never(at(factors, *dim));
  rule.set_operand(0, factors);
  factors.erase(factors.begin() + *dim);
  for (int r = 0; r < rule.result_count(); ++r) rule.set_result(r, factors);
  rule.add_term({0});
  return true;
}

/// select_backward(grad, input_sizes, dim, index)
bool select_backward_rule(RuleBuilder& rule) {
  const Shape& to = rule.result_shape(0);
  const auto dim = rule.dim(2, rank_of(to));
  if (!dim) return false;
  TensorFactors factors = rule.add_factors(to);
  rule.never(at(factors, *dim));
  rule.add_shape_slots(1, factors);
  TensorFactors left = factors;
  left.erase(left.begin() + *dim);
  return rule.set_linear(left, factors);
}

/// Pieces of a dimension. Those of equal size can be cut alike.
struct Pieces {
  DimFactors whole;
  std::vector<DimFactors> parts;
  std::optional<int> part;  ///< the factor that all pieces share
};

Pieces cut_pieces(RuleBuilder& rule, std::int64_t whole, const std::vector<std::int64_t>& sizes) {
  Pieces pieces;
  const bool are_equal =
      !sizes.empty() && std::all_of(sizes.begin(), sizes.end(),
                                    [&](std::int64_t size) { return size == sizes.front(); });
  if (are_equal && sizes.front() > 0) {
    pieces.part = rule.add_factor(sizes.front());
    if (sizes.size() > 1)
      pieces.whole = {rule.add_factor(static_cast<std::int64_t>(sizes.size()), Split::kNever)};
    pieces.whole.push_back(*pieces.part);
    pieces.parts.assign(sizes.size(), {*pieces.part});
    return pieces;
  }
  pieces.whole = {rule.add_factor(whole, Split::kNever)};
  for (const std::int64_t size : sizes)
    pieces.parts.push_back({rule.add_factor(size, Split::kNever)});
  return pieces;
}

/// split(x, size, dim = 0), split_with_sizes(x, sizes, dim = 0)
bool split_rule(RuleBuilder& rule) {
  const Shape& from = rule.operand_shape(0);
  const int dim = rule.dim(2, rank_of(from)).value_or(0);
  std::vector<std::int64_t> sizes;
  for (int r = 0; r < rule.result_count(); ++r) sizes.push_back(at(rule.result_shape(r), dim));
  TensorFactors factors = rule.add_factors(from);
  const Pieces pieces = cut_pieces(rule, at(from, dim), sizes);
  at(factors, dim) = pieces.whole;
  rule.set_operand(0, factors);
  for (int r = 0; r < rule.result_count(); ++r) {
    at(factors, dim) = pieces.parts[static_cast<std::size_t>(r)];
    rule.set_result(r, factors);
  }
  if (pieces.part) {
    if (rule.list_length(1) == 0) rule.add_slot(1, -1, {*pieces.part});
    for (int i = 0; i < rule.list_length(1); ++i) rule.add_slot(1, i, {*pieces.part});
  }
  rule.add_term({0});
  return true;
}

/// cat(tensors, dim = 0). A tensor [0], as of an empty cache, adds nothing at any rank.
bool cat_rule(RuleBuilder& rule) {
  const Shape& to = rule.result_shape(0);
  const int dim = rule.dim(1, rank_of(to)).value_or(0);
  std::vector<int> joined;
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < rule.operand_count(); ++i) {
    const Shape& from = rule.operand_shape(i);
    if (from.size() == to.size()) {
      joined.push_back(i);
      sizes.push_back(at(from, dim));
    } else if (from == Shape{0}) {
      rule.set_operand(i, {{rule.add_factor(0, Split::kNever)}});
      rule.ignore(i);
    } else {
      return false;
    }
  }
  TensorFactors factors = rule.add_factors(to);
  const Pieces pieces = cut_pieces(rule, at(to, dim), sizes);
  at(factors, dim) = pieces.whole;
  rule.set_result(0, factors);
  for (std::size_t piece = 0; piece < joined.size(); ++piece) {
    at(factors, dim) = pieces.parts[piece];
    rule.set_operand(joined[piece], factors);
    rule.add_term({joined[piece]});
  }
  return true;
}

/// stack(tensors, dim = 0)
bool stack_rule(RuleBuilder& rule) {
  const Shape& to = rule.result_shape(0);
  const int dim = rule.dim(1, rank_of(to)).value_or(0);
  TensorFactors factors = rule.add_factors(to);
  rule.never(at(factors, dim));
  rule.set_result(0, factors);
  factors.erase(factors.begin() + dim);
  for (int i = 0; i < rule.operand_count(); ++i) {
    rule.set_operand(i, factors);
    rule.add_term({i});
  }
  return true;
}

// ---- along a dimension

/// All tensors have equal dimensions except those at argument `Position`, which are never split.
/// `Linear`: in the first operand.
template <int Position, bool Linear>
bool along_rule(RuleBuilder& rule) {
  const Shape& wide = rule.operand_shape(0);
  const std::vector<int> dims = rule.dims(Position, rank_of(wide));
  TensorFactors factors = rule.add_factors(wide);
  for (const int dim : dims) rule.never(at(factors, dim));
  const auto like = [&](const Shape& shape) {
    TensorFactors made = factors;
    if (shape.size() != wide.size()) return TensorFactors{};
    for (const int dim : dims)
      if (at(shape, dim) != at(wide, dim))
        at(made, dim) = {rule.add_factor(at(shape, dim), Split::kNever)};
    return made;
  };
  rule.set_all(like);
  if (Linear) rule.add_term({0});
  return true;
}

/// gather(x, dim, index), scatter(x, dim, index, src): rows that differ are never split either.
bool scatter_rule(RuleBuilder& rule) {
  const Shape& wide = rule.operand_shape(0);
  const auto dim = rule.dim(1, rank_of(wide));
  if (!dim) return false;
  TensorFactors factors = rule.add_factors(wide);
  rule.never(at(factors, *dim));
  const auto like = [&](const Shape& shape) {
    TensorFactors made = factors;
    for (int d = 0; d < rank_of(shape); ++d)
      if (at(shape, d) != at(wide, d)) {
        rule.never(at(factors, d));
        at(made, d) = {rule.add_factor(at(shape, d), Split::kNever)};
      }
    return made;
  };
  for (int i = 0; i < rule.operand_count(); ++i) {
    if (rule.operand_shape(i).size() != wide.size()) return false;
    rule.set_operand(i, like(rule.operand_shape(i)));
  }
  rule.set_result(0, like(rule.result_shape(0)));
  const bool adds = rule.op().name == "aten::scatter_add" || rule.op().overload == "src";
  const bool scatters = adds || rule.op().name == "aten::scatter";
  // Neither a maximum nor a replaced number is a sum.
  if (rule.op().name == "aten::scatter_reduce" || (scatters && !adds)) return true;
  rule.add_term({0});
  if (adds) rule.add_term({rule.operand(3)});
  return true;
}

/// select_scatter(x, src, dim, index), slice_scatter(x, src, dim, start, end, step)
template <bool Slice>
bool scatter_block_rule(RuleBuilder& rule) {
  const Shape& wide = rule.operand_shape(0);
  const auto dim = rule.dim(2, rank_of(wide));
  if (!dim) return false;
  TensorFactors factors = rule.add_factors(wide);
  rule.never(at(factors, *dim));
  rule.set_operand(0, factors);
  rule.set_result(0, factors);
  if (Slice)
    at(factors, *dim) = {rule.add_factor(at(rule.operand_shape(1), *dim), Split::kNever)};
  else
    factors.erase(factors.begin() + *dim);
  rule.set_operand(1, factors);
  rule.add_term({0});
  rule.add_term({1});
  return true;
}

/// sort(x, dim, descending), and sort.stable(x, stable, dim, descending)
bool sort_rule(RuleBuilder& rule) {
  return rule.op().overload == "stable" ? along_rule<2, false>(rule) : along_rule<1, false>(rule);
}

/// Never splits the last `Count` dimensions: triangles.
template <int Count>
bool trailing_rule(RuleBuilder& rule) {
  const Shape& shape = rule.operand_shape(0);
  TensorFactors factors = rule.add_factors(shape);
  for (int d = std::max(0, rank_of(shape) - Count); d < rank_of(shape); ++d)
    rule.never(at(factors, d));
  rule.set_operand(0, factors);
  rule.set_result(0, factors);
  rule.add_term({0});
  return rule.operand_count() == 1;
}

/// constant_pad_nd(x, pad, value); pad has two numbers per dimension, last dimension first.
bool pad_rule(RuleBuilder& rule) {
  const Shape &from = rule.operand_shape(0), &to = rule.result_shape(0);
  TensorFactors from_factors = rule.add_factors(from), to_factors = from_factors;
  const int padded = rule.list_length(1) / 2;
  for (int d = std::max(0, rank_of(from) - padded); d < rank_of(from); ++d) {
    const int place = 2 * (rank_of(from) - 1 - d);
    if (rule.integer(1, place) == 0 && rule.integer(1, place + 1) == 0) continue;
    rule.never(at(from_factors, d));
    at(to_factors, d) = {rule.add_factor(at(to, d), Split::kNever)};
  }
  rule.set_operand(0, from_factors);
  rule.set_result(0, to_factors);
  if (rule.number(2) == 0.0) rule.add_term({0});
  return true;
}

// ---- reductions

/// Drops the dimensions at argument `Dims` (none: all), or keeps them with size 1. Rewritten
/// results become those of the whole.
template <Split Reduced, bool Linear, int Dims = 1>
bool reduce_rule(RuleBuilder& rule) {
  const Shape& from = rule.operand_shape(0);
  const Shape& to = rule.result_shape(0);
  const int rank = rank_of(from);
  const std::vector<int> dims = rule.dims(Dims, rank);
  TensorFactors factors = rule.add_factors(from), kept;
  for (int d = 0; d < rank; ++d) {
    const bool goes = holds(dims, d);
    if (goes) rule.set_split(at(factors, d), Reduced);
    for (int r = 0; goes && Reduced == Split::kRewritten && r < rule.result_count(); ++r)
      rule.set_independent(r, at(factors, d)[0]);
    if (!goes) kept.push_back(at(factors, d));
    if (goes && to.size() == from.size()) kept.emplace_back();
  }
  rule.set_operand(0, factors);
  for (int r = 0; r < rule.result_count(); ++r) rule.set_result(r, kept);
  if (Linear) rule.add_term({0});
  return rule.operand_count() == 1;
}

/// max(x), max(x, dim); max(x, other) is elementwise.
bool extreme_rule(RuleBuilder& rule) {
  if (rule.op().overload == "other") return elementwise_rule(rule);
  return reduce_rule<Split::kNever, false>(rule);
}

// ---- new tensors

/// zeros(size, ...), full(size, value, ...); new_zeros(x, size, ...), where x gives only the dtype.
template <int Shape_>
bool fill_rule(RuleBuilder& rule) {
  const TensorFactors factors = rule.add_factors(rule.result_shape(0));
  rule.set_result(0, factors);
  rule.add_shape_slots(Shape_, factors);
  if (rule.operand_count() > 0) {
    rule.set_operand(0, rule.add_factors(rule.operand_shape(0), Split::kNever));
    rule.ignore(0);
  }
  return true;
}

/// arange(end), (start, end), (start, end, step): a part of a count by ones begins later.
bool arange_rule(RuleBuilder& rule) {
  const std::string& overload = rule.op().overload;
  const bool by_ones = overload.empty() || overload == "start" || rule.integer(2) == 1;
  const bool counts = by_ones && !is_floating(rule.result_dtype(0));
  rule.set_result(
      0, rule.add_factors(rule.result_shape(0), counts ? Split::kRewritten : Split::kNever));
  return rule.operand_count() == 0;
}

/// motley::random(distribution, shape, dtype, draw): by elements, except a permutation.
bool random_rule(RuleBuilder& rule) {
  const Split split = draws_across(rule.op()) ? Split::kNever : Split::kRewritten;
  rule.set_result(0, rule.add_factors(rule.result_shape(0), split));
  return rule.operand_count() == 0;
}

/// Splits nothing: scalar_tensor.
bool whole_rule(RuleBuilder& rule) {
  rule.set_all([&](const Shape& shape) { return rule.add_factors(shape, Split::kNever); });
  return true;
}

/// unfold(x, dim, size, step): the windows along a dimension, with their elements last; and
/// unfold_backward(grad, sizes, dim, size, step).
template <bool Backward>
bool unfold_rule(RuleBuilder& rule) {
  const Shape& image = Backward ? rule.result_shape(0) : rule.operand_shape(0);
  const Shape& windows = Backward ? rule.operand_shape(0) : rule.result_shape(0);
  const auto dim = rule.dim(Backward ? 2 : 1, rank_of(image));
  if (!dim || windows.size() != image.size() + 1) return false;
  TensorFactors whole = rule.add_factors(image);
  rule.never(at(whole, *dim));
  TensorFactors taken = whole;
  at(taken, *dim) = {rule.add_factor(at(windows, *dim), Split::kNever)};
  taken.push_back({rule.add_factor(windows.back(), Split::kNever)});
  if (Backward) rule.add_shape_slots(1, whole);
  return rule.set_linear(Backward ? taken : whole, Backward ? whole : taken);
}

constexpr NamedRuleMaker kMovementRules[] = {
    {"aten::view", view_rule},
    {"aten::reshape", view_rule},
    {"aten::t", t_rule},
    {"aten::transpose", transpose_rule},
    {"aten::permute", permute_rule},
    {"aten::unsqueeze", squeeze_rule},
    {"aten::squeeze", squeeze_rule},
    {"aten::expand", expand_rule},
    {"aten::repeat", repeat_rule},
    {"aten::slice", slice_rule},
    {"aten::slice_backward", slice_backward_rule},
    {"aten::select", drop_rule},
    {"aten::select_backward", select_backward_rule},
    {"aten::unbind", drop_rule},
    {"aten::split", split_rule},
    {"aten::unsafe_split", split_rule},
    {"aten::split_with_sizes", split_rule},
    {"aten::unfold", unfold_rule<false>},
    {"aten::unfold_backward", unfold_rule<true>},
    {"aten::cat", cat_rule},
    {"aten::stack", stack_rule},
    {"aten::_softmax", along_rule<1, false>},
    {"aten::_softmax_backward_data", along_rule<2, true>},
    {"aten::cumsum", along_rule<1, true>},
    {"aten::cumprod", along_rule<1, false>},
    {"aten::_fft_r2c", along_rule<1, true>},
    {"aten::_fft_c2r", along_rule<1, true>},
    {"aten::_fft_c2c", along_rule<1, true>},
    {"aten::view_as_real", parts_of_complex_rule},
    {"aten::view_as_complex", parts_of_complex_rule},
    {"aten::flip", along_rule<1, true>},
    {"aten::roll", along_rule<2, true>},
    {"aten::logcumsumexp", along_rule<1, false>},
    {"aten::cummax", along_rule<1, false>},
    {"aten::cummin", along_rule<1, false>},
    {"aten::_safe_softmax", along_rule<1, false>},
    {"aten::glu", along_rule<1, false>},
    {"aten::glu_backward", along_rule<2, true>},
    {"aten::sort", sort_rule},
    {"aten::argsort", sort_rule},
    {"aten::topk", along_rule<2, false>},
    {"aten::gather", scatter_rule},
    {"aten::scatter", scatter_rule},
    {"aten::scatter_add", scatter_rule},
    {"aten::scatter_reduce", scatter_rule},
    {"aten::select_scatter", scatter_block_rule<false>},
    {"aten::slice_scatter", scatter_block_rule<true>},
    {"aten::tril", trailing_rule<2>},
    {"aten::triu", trailing_rule<2>},
    {"aten::constant_pad_nd", pad_rule},
    {"aten::sum", reduce_rule<Split::kPlain, true>},
    {"aten::mean", reduce_rule<Split::kMean, true>},
    {"aten::nansum", reduce_rule<Split::kPlain, false>},
    {"aten::linalg_vector_norm", reduce_rule<Split::kNever, false, 2>},
    {"aten::norm", reduce_rule<Split::kNever, false, 2>},
    {"aten::median", reduce_rule<Split::kNever, false>},
    {"aten::mode", reduce_rule<Split::kNever, false>},
    {"aten::kthvalue", reduce_rule<Split::kNever, false, 2>},
    {"aten::std_mean", reduce_rule<Split::kNever, false>},
    {"aten::max", extreme_rule},
    {"aten::min", extreme_rule},
    {"aten::amax", reduce_rule<Split::kNever, false>},
    {"aten::amin", reduce_rule<Split::kNever, false>},
    {"aten::argmax", reduce_rule<Split::kNever, false>},
    {"aten::argmin", reduce_rule<Split::kNever, false>},
    {"aten::logsumexp", reduce_rule<Split::kNever, false>},
    {"aten::prod", reduce_rule<Split::kNever, false>},
    {"aten::any", reduce_rule<Split::kNever, false>},
    {"aten::all", reduce_rule<Split::kNever, false>},
    {"aten::var", reduce_rule<Split::kRewritten, false>},
    {"aten::std", reduce_rule<Split::kRewritten, false>},
    {"aten::var_mean", reduce_rule<Split::kRewritten, false>},
    {"aten::zeros", fill_rule<0>},
    {"aten::ones", fill_rule<0>},
    {"aten::full", fill_rule<0>},
    {"aten::empty", fill_rule<0>},
    {"aten::new_zeros", fill_rule<1>},
    {"aten::new_ones", fill_rule<1>},
    {"aten::new_full", fill_rule<1>},
    {"aten::new_empty", fill_rule<1>},
    {"aten::arange", arange_rule},
    {"aten::scalar_tensor", whole_rule},
    {"motley::random", random_rule},
};

}  // namespace

std::span<const NamedRuleMaker> movement_rules() { return kMovementRules; }

}  // namespace motley::graph
