// Operators that work elementwise on operands aligned by numpy broadcasting.

#include <algorithm>
#include <array>

#include "motley/base/dtype.h"
#include "motley/graph/rules/rule_builder.h"

namespace motley::graph {
namespace {

constexpr auto kNames = std::to_array<std::string_view>({
    "aten::_conj_physical",
    "aten::_to_copy",
    "aten::abs",
    "aten::acos",
    "aten::acosh",
    "aten::add",
    "aten::addcdiv",
    "aten::addcmul",
    "aten::angle",
    "aten::asin",
    "aten::asinh",
    "aten::atan",
    "aten::atan2",
    "aten::atanh",
    "aten::bitwise_and",
    "aten::bitwise_left_shift",
    "aten::bitwise_not",
    "aten::bitwise_or",
    "aten::bitwise_right_shift",
    "aten::bitwise_xor",
    "aten::ceil",
    "aten::celu",
    "aten::clamp",
    "aten::clamp_max",
    "aten::clamp_min",
    "aten::clone",
    "aten::complex",
    "aten::contiguous",
    "aten::copy",
    "aten::copysign",
    "aten::cos",
    "aten::cosh",
    "aten::digamma",
    "aten::div",
    "aten::elu",
    "aten::elu_backward",
    "aten::empty_like",
    "aten::eq",
    "aten::erf",
    "aten::erfc",
    "aten::erfinv",
    "aten::exp",
    "aten::exp2",
    "aten::expm1",
    "aten::fill",
    "aten::floor",
    "aten::floor_divide",
    "aten::fmax",
    "aten::fmin",
    "aten::fmod",
    "aten::frac",
    "aten::full_like",
    "aten::ge",
    "aten::gelu",
    "aten::gelu_backward",
    "aten::gt",
    "aten::hardshrink",
    "aten::hardshrink_backward",
    "aten::hardsigmoid",
    "aten::hardsigmoid_backward",
    "aten::hardswish",
    "aten::hardswish_backward",
    "aten::hardtanh",
    "aten::hardtanh_backward",
    "aten::heaviside",
    "aten::hypot",
    "aten::isfinite",
    "aten::isinf",
    "aten::isnan",
    "aten::le",
    "aten::leaky_relu",
    "aten::leaky_relu_backward",
    "aten::lerp",
    "aten::lgamma",
    "aten::lift_fresh_copy",
    "aten::log",
    "aten::log10",
    "aten::log1p",
    "aten::log2",
    "aten::log_sigmoid_backward",
    "aten::log_sigmoid_forward",
    "aten::logaddexp",
    "aten::logaddexp2",
    "aten::logical_and",
    "aten::logical_not",
    "aten::logical_or",
    "aten::logical_xor",
    "aten::logit",
    "aten::logit_backward",
    "aten::lt",
    "aten::masked_fill",
    "aten::maximum",
    "aten::minimum",
    "aten::mish",
    "aten::mish_backward",
    "aten::mul",
    "aten::nan_to_num",
    "aten::native_dropout_backward",
    "aten::ne",
    "aten::neg",
    "aten::ones_like",
    "aten::polar",
    "aten::pow",
    "aten::reciprocal",
    "aten::relu",
    "aten::relu6",
    "aten::remainder",
    "aten::round",
    "aten::rrelu_with_noise_backward",
    "aten::rsqrt",
    "aten::rsub",
    "aten::selu",
    "aten::sgn",
    "aten::sigmoid",
    "aten::sigmoid_backward",
    "aten::sign",
    "aten::silu",
    "aten::silu_backward",
    "aten::sin",
    "aten::sinh",
    "aten::softplus",
    "aten::softplus_backward",
    "aten::softshrink",
    "aten::softshrink_backward",
    "aten::special_ndtr",
    "aten::sqrt",
    "aten::square",
    "aten::sub",
    "aten::tan",
    "aten::tanh",
    "aten::tanh_backward",
    "aten::threshold",
    "aten::threshold_backward",
    "aten::trunc",
    "aten::where",
    "aten::xlogy",
    "aten::zero",
    "aten::zeros_like",
});
static_assert(std::is_sorted(kNames.begin(), kNames.end()));

/// Returns whether a cast keeps the digits that a sum needs.
bool widens(DType from, DType to) {
  const auto digits = [](DType dtype) {
    if (is_complex(dtype)) return dtype_size(dtype) / 2;
    return is_floating(dtype) ? dtype_size(dtype) : 0;
  };
  return digits(from) > 0 && digits(to) >= digits(from);
}

/// Adds terms for operators that commute with a sum of the devices' parts.
void add_terms(RuleBuilder& rule) {
  const std::string_view name = rule.op().name;
  const bool is_one = rule.operand_count() == 1;
  if (name == "aten::clone" || name == "aten::neg" || name == "aten::contiguous" ||
      name == "aten::_conj_physical") {
    rule.add_term({0});
  } else if (name == "aten::complex") {
    rule.add_term({0});
    rule.add_term({1});
  } else if (name == "aten::_to_copy") {
    if (widens(rule.operand_dtype(0), rule.result_dtype(0))) rule.add_term({0});
  } else if (name == "aten::add" || name == "aten::sub") {
    // A number would be added on every device, except the 0 with which Python's sum() begins.
    if (is_one && rule.number(1) == 0.0) rule.add_term({0});
    if (is_one) return;
    rule.add_term({rule.operand(0)});
    rule.add_term({rule.operand(1)});
  } else if (name == "aten::mul") {
    if (is_one || rule.op().arguments[0] != rule.op().arguments[1])
      rule.add_term(is_one ? std::vector{0} : std::vector{0, 1});
  } else if (name == "aten::div") {
    const bool rounds = rule.op().overload.find("mode") != std::string::npos;
    if (!rounds && rule.op().arguments[0] != rule.op().arguments[1]) rule.add_term({0});
  } else if (name == "aten::where") {
    if (rule.operand(1) < 0 || rule.operand(2) < 0) return;
    rule.add_term({rule.operand(1)});
    rule.add_term({rule.operand(2)});
  } else if (name == "aten::masked_fill") {
    if (rule.number(2) == 0.0) rule.add_term({0});
  } else if (name.ends_with("_backward")) {
    rule.add_term({0});  // the gradient comes first
  }
}

}  // namespace

bool is_elementwise(std::string_view op_name) {
  return std::binary_search(kNames.begin(), kNames.end(), op_name);
}

bool elementwise_rule(RuleBuilder& rule) {
  if (rule.operand_count() == 0) return false;
  const std::vector<std::int64_t>& shape = rule.result_shape(0);
  const TensorFactors factors = rule.add_factors(shape);
  if (!rule.broadcast_operands(factors)) return false;
  for (int r = 0; r < rule.result_count(); ++r) {
    if (rule.result_shape(r) != shape) return false;
    rule.set_result(r, factors);
  }
  add_terms(rule);
  return true;
}

}  // namespace motley::graph
