#include "motley/graph/work.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

namespace motley::graph {
namespace {

/// Names without overload must be sorted for binary search.
template <std::size_t kCount>
constexpr bool is_sorted_list(const std::array<std::string_view, kCount>& names) {
  return std::is_sorted(names.begin(), names.end());
}

constexpr std::array kViews = std::to_array<std::string_view>({"aten::_conj",
                                                               "aten::_neg_view",
                                                               "aten::_reshape_alias",
                                                               "aten::_unsafe_view",
                                                               "aten::adjoint",
                                                               "aten::alias",
                                                               "aten::as_strided",
                                                               "aten::chunk",
                                                               "aten::detach",
                                                               "aten::diagonal",
                                                               "aten::dsplit",
                                                               "aten::expand",
                                                               "aten::expand_as",
                                                               "aten::hsplit",
                                                               "aten::imag",
                                                               "aten::lift_fresh",
                                                               "aten::mT",
                                                               "aten::matrix_H",
                                                               "aten::moveaxis",
                                                               "aten::movedim",
                                                               "aten::narrow",
                                                               "aten::numpy_T",
                                                               "aten::permute",
                                                               "aten::real",
                                                               "aten::reshape",
                                                               "aten::select",
                                                               "aten::slice",
                                                               "aten::split",
                                                               "aten::split_with_sizes",
                                                               "aten::squeeze",
                                                               "aten::swapaxes",
                                                               "aten::swapdims",
                                                               "aten::t",
                                                               "aten::tensor_split",
                                                               "aten::transpose",
                                                               "aten::unbind",
                                                               "aten::unflatten",
                                                               "aten::unfold",
                                                               "aten::unsqueeze",
                                                               "aten::view",
                                                               "aten::view_as",
                                                               "aten::view_as_complex",
                                                               "aten::view_as_real"});
static_assert(is_sorted_list(kViews));

/// Operators that move or make data without arithmetic.
constexpr std::array kMovement = std::to_array<std::string_view>({"aten::_to_copy",
                                                                  "aten::arange",
                                                                  "aten::cat",
                                                                  "aten::clone",
                                                                  "aten::constant_pad_nd",
                                                                  "aten::contiguous",
                                                                  "aten::copy",
                                                                  "aten::diagonal_scatter",
                                                                  "aten::embedding",
                                                                  "aten::empty",
                                                                  "aten::empty_like",
                                                                  "aten::empty_strided",
                                                                  "aten::eye",
                                                                  "aten::fill",
                                                                  "aten::flip",
                                                                  "aten::full",
                                                                  "aten::full_like",
                                                                  "aten::gather",
                                                                  "aten::index",
                                                                  "aten::index_select",
                                                                  "aten::masked_fill",
                                                                  "aten::masked_select",
                                                                  "aten::new_empty",
                                                                  "aten::new_empty_strided",
                                                                  "aten::new_full",
                                                                  "aten::new_ones",
                                                                  "aten::new_zeros",
                                                                  "aten::ones",
                                                                  "aten::ones_like",
                                                                  "aten::permute_copy",
                                                                  "aten::repeat",
                                                                  "aten::roll",
                                                                  "aten::scalar_tensor",
                                                                  "aten::scatter",
                                                                  "aten::select_backward",
                                                                  "aten::select_scatter",
                                                                  "aten::slice_backward",
                                                                  "aten::slice_scatter",
                                                                  "aten::stack",
                                                                  "aten::tril",
                                                                  "aten::triu",
                                                                  "aten::view_copy",
                                                                  "aten::where",
                                                                  "aten::zero",
                                                                  "aten::zeros",
                                                                  "aten::zeros_like"});
static_assert(is_sorted_list(kMovement));

/// Operators that read only the rows of their index: the first tensor counts as the result.
constexpr std::array kLookups = std::to_array<std::string_view>(
    {"aten::embedding", "aten::gather", "aten::index", "aten::index_select"});
static_assert(is_sorted_list(kLookups));

template <std::size_t kCount>
bool contains(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return std::binary_search(names.begin(), names.end(), name);
}

std::string_view without_overload(std::string_view name) { return name.substr(0, name.find('.')); }

/// An operator with its shapes where it runs. Accessors return null or empty if the operator does
/// not match its schema: files come from outside.
class SizedOp {
 public:
  SizedOp(const Graph& graph, const Op& op, const ShapeOf& shape_of)
      : graph_(graph), op_(op), shape_of_(shape_of) {}

  /// Returns a value's elements as a double, which saturates far beyond any memory.
  double elements_of(ValueId value) const {
    double elements = graph_.value(value).dtype == DType::kNone ? 0 : 1;
    for (const std::int64_t size : shape_of_(value)) elements *= static_cast<double>(size);
    return elements;
  }
  Bytes bytes_of(ValueId value) const {
    constexpr double kMost = 9e18;
    const auto size = static_cast<double>(dtype_size(graph_.value(value).dtype));
    return Bytes(static_cast<std::int64_t>(std::min(kMost, elements_of(value) * size)));
  }
  /// Returns the elements of tensor argument `position`; empty if it is not a tensor.
  std::optional<double> elements(std::size_t position) const {
    const auto value = tensor(position);
    if (!value) return std::nullopt;
    return elements_of(*value);
  }
  /// Returns one dimension of a tensor argument; negative ones count from the end.
  std::optional<double> dimension(std::size_t position, int dimension) const {
    const auto value = tensor(position);
    if (!value) return std::nullopt;
    const std::vector<std::int64_t> shape = shape_of_(*value);
    const int rank = static_cast<int>(shape.size());
    const int at = dimension < 0 ? dimension + rank : dimension;
    if (at < 0 || at >= rank) return std::nullopt;
    return static_cast<double>(shape[static_cast<std::size_t>(at)]);
  }
  /// Returns the elements of result `position`; 0 if undefined.
  double result_elements(std::size_t position) const {
    return position < op_.outputs.size() ? elements_of(op_.outputs[position]) : 0;
  }
  /// Returns the extent of argument 0 (result 0 if larger) along the dimensions of a list argument.
  double extent_along(std::size_t position) const {
    const auto* dims = position < op_.arguments.size()
                           ? std::get_if<SymbolicArguments>(&op_.arguments[position].value)
                           : nullptr;
    const std::vector<std::int64_t> made = shape_of_(op_.outputs.at(0));
    double extent = 1;
    for (const SymbolicArgument& each : dims == nullptr ? SymbolicArguments() : *dims) {
      const auto* dim = std::get_if<std::int64_t>(&each.value);
      if (dim == nullptr || *dim < 0 || *dim >= static_cast<std::int64_t>(made.size())) continue;
      const double size = static_cast<double>(made[static_cast<std::size_t>(*dim)]);
      extent *= std::max(size, dimension(0, static_cast<int>(*dim)).value_or(1));
    }
    return extent;
  }
  bool flag(std::size_t position) const {
    if (position >= op_.arguments.size()) return false;
    const bool* value = std::get_if<bool>(&op_.arguments[position].value);
    return value != nullptr && *value;
  }
  /// Returns 0 if there is none.
  double number(std::size_t position) const {
    if (position >= op_.arguments.size()) return 0;
    const double* value = std::get_if<double>(&op_.arguments[position].value);
    return value == nullptr ? 0 : *value;
  }
  /// Returns element `index` of a list of booleans; true if there is none.
  bool mask(std::size_t position, std::size_t index) const {
    if (position >= op_.arguments.size()) return true;
    const auto* list = std::get_if<SymbolicArguments>(&op_.arguments[position].value);
    if (list == nullptr || index >= list->size()) return true;
    const bool* value = std::get_if<bool>(&(*list)[index].value);
    return value == nullptr || *value;
  }

 private:
  std::optional<ValueId> tensor(std::size_t position) const {
    if (position >= op_.arguments.size()) return std::nullopt;
    const auto* id = std::get_if<ValueId>(&op_.arguments[position].value);
    if (id == nullptr) return std::nullopt;
    return *id;
  }

  const Graph& graph_;
  const Op& op_;
  const ShapeOf& shape_of_;
};

using MaybeFlops = std::optional<double>;

/// Returns the operations of n results, each a dot product over `inner` elements.
MaybeFlops products(double n, std::optional<double> inner) {
  if (!inner) return std::nullopt;
  return 2 * n * *inner;
}

/// Returns the operations of a convolution. `weight` is [out, in / groups, kernel...], transposed
/// [in, out / groups, kernel...]. Each position of the other side meets the weight's elements /
/// dimension 0.
MaybeFlops convolution(const SizedOp& op, std::size_t weight, double positions) {
  const auto elements = op.elements(weight);
  const auto first = op.dimension(weight, 0);
  if (!elements || !first || *first == 0) return std::nullopt;
  return 2 * positions * *elements / *first;
}

/// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
MaybeFlops convolution_forward(const SizedOp& op) {
  const bool transposed = op.flag(6);
  const double positions = transposed ? op.elements(0).value_or(0) : op.result_elements(0);
  return convolution(op, 1, positions);
}

/// convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
/// transposed, output_padding, groups, output_mask): input and weight each cost a forward pass, the
/// bias a sum.
MaybeFlops convolution_backward(const SizedOp& op) {
  const double positions = op.elements(op.flag(7) ? 1 : 0).value_or(0);
  const auto forward = convolution(op, 2, positions);
  if (!forward) return std::nullopt;
  return (op.mask(10, 0) ? *forward : 0) + (op.mask(10, 1) ? *forward : 0) +
         (op.mask(10, 2) ? op.elements(0).value_or(0) : 0);
}

/// Returns the operations of attention on q [B, H, S, D], k [B, h, T, D], v [B, h, T, E], from
/// argument `q` on: `wide` products of [S, D] by [D, T] and `narrow` ones of [S, T] by [T, E].
/// Ignores causal masks, from which kernels save different amounts.
MaybeFlops attention(const SizedOp& op, std::size_t q, double wide, double narrow) {
  const auto query = op.elements(q);
  const auto depth = op.dimension(q, -1);
  const auto keys = op.dimension(q + 1, -2);
  const auto value_depth = op.dimension(q + 2, -1);
  if (!query || !depth || *depth == 0 || !keys || !value_depth) return std::nullopt;
  return 2 * *query / *depth * *keys * (wide * *depth + narrow * *value_depth);
}

/// Returns the operations of fast Fourier transforms(x, dimensions, ...): `each` times log2(n) per
/// number, n of them together. `each` is 5 for complex numbers, half of it for real ones.
MaybeFlops transform(const SizedOp& op, double each) {
  const double numbers = std::max(op.elements(0).value_or(0), op.result_elements(0));
  return each * numbers * std::log2(std::max(2.0, op.extent_along(1)));
}

/// Returns the operations by formula; empty without one, or if the schema does not match.
MaybeFlops formula(std::string_view name, const SizedOp& op) {
  if (name == "aten::mm" || name == "aten::bmm" || name == "aten::linear" ||
      name == "aten::matmul" || name == "aten::mv" || name == "aten::dot" || name == "aten::vdot") {
    return products(op.result_elements(0), op.dimension(0, -1));
  }
  if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv" ||
      name == "aten::_addmm_activation") {
    return products(op.result_elements(0), op.dimension(1, -1));
  }
  if (name == "aten::convolution" || name == "aten::_convolution") return convolution_forward(op);
  if (name == "aten::convolution_backward") return convolution_backward(op);
  if (name == "aten::_fft_c2c") return transform(op, 5);
  if (name == "aten::_fft_r2c" || name == "aten::_fft_c2r") return transform(op, 2.5);
  // Forward: scores and their product with v. Backward: scores again, gradients of q and k (over
  // D), gradients of the probabilities and v (over E).
  if (name == "motley::attention") return attention(op, 0, 1, 1);
  if (name == "motley::attention_backward") return attention(op, 1, 3, 2);
  // The last argument is the work per sample.
  if (name == "motley::layer") return op.dimension(0, 0).value_or(0) * op.number(3);
  if (name == "motley::layer_backward") return op.dimension(0, 0).value_or(0) * op.number(5);
  return std::nullopt;
}

}  // namespace

bool is_view(std::string_view op_name) {
  const std::string_view name = without_overload(op_name);
  return contains(kViews, name);
}

Work op_work(const Graph& graph, OpId id, const ShapeOf& shape_of) {
  const Op& op = graph.op(id);
  Work work;
  if (is_view(op.name)) return work;
  const SizedOp sized(graph, op, shape_of);
  std::vector<ValueId> read;
  for_each_value(op.arguments, [&](ValueId value) { read.push_back(value); });
  if (contains(kLookups, op.name) && !read.empty()) read[0] = op.outputs[0];
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  double touched = 0, made = 0;
  for (const ValueId value : read) {
    work.bytes_read += sized.bytes_of(value);
    touched = std::max(touched, sized.elements_of(value));
  }
  for (const ValueId value : op.outputs) {
    work.bytes_written += sized.bytes_of(value);
    made += sized.elements_of(value);
  }
  if (contains(kMovement, op.name)) return work;
  // The traffic of a profile's layer is part of its measured time.
  if (op.name.starts_with("motley::layer")) work = {};
  work.flops = Flops(formula(op.name, sized).value_or(std::max(touched, made)));
  return work;
}

Work op_work(const Graph& graph, OpId id, const Sizes& sizes) {
  return op_work(graph, id, [&](ValueId value) {
    std::vector<std::int64_t> shape;
    for (const SizeExpr& size : graph.value(value).shape)
      shape.push_back(size.evaluate_integer(sizes));
    return shape;
  });
}

Work total_work(const Graph& graph, const Sizes& sizes) {
  Work total;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Work work = op_work(graph, OpId(i), sizes);
    total.flops += work.flops;
    total.bytes_read += work.bytes_read;
    total.bytes_written += work.bytes_written;
  }
  return total;
}

}  // namespace motley::graph
