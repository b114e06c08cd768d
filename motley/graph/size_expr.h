#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

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
  /* implicit */ SizeExpr(std::int64_t constant) : constant_(constant) {}
  static SizeExpr symbol(std::string name);

  bool is_constant() const;
  /// Is its value an integer at all sizes? True unless `/` occurs.
  bool is_integer() const;
  /// Does a named size occur in it?
  bool depends_on(std::string_view name) const;
  /// The named sizes that occur, each once, in order of first occurrence.
  std::vector<std::string> symbols() const;
  /// Value at `sizes`; every name in the expression must be there (checked by verify before).
  /// Division by zero gives 0 for // and %, IEEE for /. Integers saturate instead of overflowing.
  Number evaluate(const Sizes& sizes) const;
  /// evaluate(), which must be an integer (true of every shape expression that verifies).
  std::int64_t evaluate_integer(const Sizes& sizes) const;
  /// Canonical text; equal texts are equal expressions.
  std::string text() const;

  bool operator==(const SizeExpr& other) const;

  struct Node;

 private:
  explicit SizeExpr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  friend class SizeExprParser;
  std::int64_t constant_ = 0;         // the expression, when there is no node
  std::shared_ptr<const Node> node_;  // shared: immutable, copied with every value
};

/// Whole-string parse; operations on integers alone are folded. Bounded (1,000 nodes, 64 levels of
/// parentheses); the error says the column.
Result<SizeExpr> parse_size_expr(std::string_view text);

}  // namespace motley::graph
