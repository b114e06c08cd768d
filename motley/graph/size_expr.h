#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "motley/base/result.h"

namespace motley::graph {

/// Values of the named sizes ("batch" -> 24).
using Sizes = std::map<std::string, std::int64_t, std::less<>>;

/// An integer, or a float where `/` was used.
using Number = std::variant<std::int64_t, double>;

/// An arithmetic expression over named sizes: integers, names, + - * // / %, max, min.
/// Immutable and cheap to copy. Grammar and canonical text: docs/formats/graph.md.
///
///   parse_size_expr("batch*4+1") evaluated at batch=2 is 9; its text is "batch*4+1".
class SizeExpr {
 public:
  SizeExpr() : SizeExpr(0) {}
  /* implicit */ SizeExpr(std::int64_t constant);
  static SizeExpr symbol(std::string name);

  bool is_constant() const;
  /// Does a named size occur in it?
  bool depends_on(std::string_view name) const;
  /// Value at `sizes`; every name in the expression must be there (checked by verify before).
  /// Division by zero gives 0 for // and %, IEEE for /.
  Number evaluate(const Sizes& sizes) const;
  /// evaluate(), which must be an integer (true of every shape expression that verifies).
  std::int64_t evaluate_integer(const Sizes& sizes) const;
  /// Canonical text; equal texts are equal expressions.
  const std::string& text() const;

  bool operator==(const SizeExpr& other) const { return text() == other.text(); }

  struct Node;

 private:
  explicit SizeExpr(std::shared_ptr<const Node> node);
  friend Result<SizeExpr> parse_size_expr(std::string_view text);
  std::shared_ptr<const Node> node_;  // shared: an immutable tree, copied with every value
};

/// Whole-string parse. Depth and length are bounded (1,000 nodes); error says the column.
Result<SizeExpr> parse_size_expr(std::string_view text);

}  // namespace motley::graph
