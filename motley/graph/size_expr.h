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

/// An arithmetic expression over named sizes: integers, names, + - * // / %, max, min. Immutable
/// and cheap to copy. Grammar and canonical text: docs/formats/graph.md.
///
///   parse_size_expr("batch*4+1") evaluated at batch=2 is 9; its text is "batch*4+1".
class SizeExpr {
 public:
  SizeExpr() : SizeExpr(0) {}
  /* implicit */ SizeExpr(std::int64_t constant) : constant_(constant) {}
  static SizeExpr symbol(std::string name);

  bool is_constant() const;
  /// Returns whether its value is an integer at all sizes: true unless `/` occurs.
  bool is_integer() const;
  bool depends_on(std::string_view name) const;
  /// Returns the named sizes that occur, each once, in order of first occurrence.
  std::vector<std::string> symbols() const;
  /// Returns the value at `sizes`, which must contain every name (verified before). Division by
  /// zero gives 0 for // and %, IEEE for /. Integers saturate instead of overflowing.
  Number evaluate(const Sizes& sizes) const;
  /// Returns evaluate(), which must be an integer (as in every verified shape).
  std::int64_t evaluate_integer(const Sizes& sizes) const;
  /// Returns canonical text; equal texts are equal expressions.
  std::string text() const;

  bool operator==(const SizeExpr& other) const;

  struct Node;

 private:
  explicit SizeExpr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  friend class SizeExprParser;
  std::int64_t constant_ = 0;         // the expression, if there is no node
  std::shared_ptr<const Node> node_;  // shared: immutable, copied with every value
};

/// Parses and folds a whole text of up to 1,000 nodes, 64 parentheses deep. Errors give the column.
Result<SizeExpr> parse_size_expr(std::string_view text);

}  // namespace motley::graph
