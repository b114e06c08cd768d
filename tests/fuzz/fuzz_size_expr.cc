#include "motley/base/check.h"
#include "motley/graph/size_expr.h"
#include "tests/fuzz/text_of.h"

/// Any text gives an expression or a message; an expression evaluates at any sizes, and its text
/// reads back to the same.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto expr = motley::graph::parse_size_expr(motley::fuzz::text_of(data, size));
  if (!expr) return 0;
  for (const std::int64_t number : {std::int64_t{0}, std::int64_t{-3}, INT64_MAX, INT64_MIN}) {
    motley::graph::Sizes sizes;
    for (const std::string& symbol : expr->symbols()) sizes[symbol] = number;
    expr->evaluate(sizes);
  }
  const auto again = motley::graph::parse_size_expr(expr->text());
  MOTLEY_CHECK(again.has_value() && again->text() == expr->text());
  return 0;
}
