#include "motley/graph/graph.h"

#include <cmath>

#include "motley/base/check.h"

namespace motley::graph {
namespace {

std::int64_t saturating_product(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

}  // namespace

bool SymbolicArgument::operator==(const SymbolicArgument& other) const {
  const auto* a = std::get_if<double>(&value);
  const auto* b = std::get_if<double>(&other.value);
  if (a != nullptr && b != nullptr && std::isnan(*a) && std::isnan(*b)) return true;
  return value == other.value;
}

std::string Op::full_name() const { return overload.empty() ? name : name + "." + overload; }

std::vector<ValueId> values_with_role(const Graph& graph, ValueRole role) {
  std::vector<ValueId> ids;
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    if (graph.values[i].role == role) ids.emplace_back(i);
  }
  return ids;
}

std::int64_t value_elements(const Value& value, const Sizes& sizes) {
  if (value.dtype == DType::kNone) return 0;
  std::int64_t elements = 1;
  for (const SizeExpr& size : value.shape) {
    elements = saturating_product(elements, size.evaluate_integer(sizes));
  }
  return elements;
}

std::int64_t value_bytes(const Value& value, const Sizes& sizes) {
  return saturating_product(value_elements(value, sizes), dtype_size(value.dtype));
}

}  // namespace motley::graph
