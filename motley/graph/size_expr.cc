#include "motley/graph/size_expr.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "motley/base/check.h"
#include "motley/base/text.h"

namespace motley::graph {
namespace {

constexpr std::size_t kMaxSteps = 1000;
constexpr int kMaxDepth = 64;

enum class Code : std::uint8_t {
  kConstant,
  kSymbol,
  kNegate,
  kAdd,
  kSubtract,
  kMultiply,
  kFloorDivide,
  kDivide,
  kModulo,
  kMax,
  kMin
};

/// One step of an expression in postfix order. `value`: the constant, or the index of the symbol.
struct Step {
  Code code;
  std::int64_t value = 0;
};

// Arithmetic saturates: sizes come from files, and a wrapped product would be a small size that
// fits. Division by 0 gives 0: an expression may be evaluated where its result is not used.
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kSmallest = std::numeric_limits<std::int64_t>::min();

std::int64_t negate(std::int64_t a) { return a == kSmallest ? kLargest : -a; }

std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return a < 0 ? kSmallest : kLargest;
}

std::int64_t subtract(std::int64_t a, std::int64_t b) {
  std::int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return a < 0 ? kSmallest : kLargest;
}

std::int64_t multiply(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(a, b, &product)) return product;
  return (a < 0) != (b < 0) ? kSmallest : kLargest;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return negate(a);
  // Rounds towards minus infinity as in Python, where the expressions come from.
  const bool round_down = a % b != 0 && (a < 0) != (b < 0);
  return a / b - (round_down ? 1 : 0);
}

std::int64_t modulo(std::int64_t a, std::int64_t b) {
  if (b == 0 || b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

std::int64_t apply(Code code, std::int64_t a, std::int64_t b) {
  switch (code) {
    case Code::kAdd:
      return add(a, b);
    case Code::kSubtract:
      return subtract(a, b);
    case Code::kMultiply:
      return multiply(a, b);
    case Code::kFloorDivide:
      return floor_divide(a, b);
    case Code::kModulo:
      return modulo(a, b);
    case Code::kMax:
      return std::max(a, b);
    default:
      return std::min(a, b);
  }
}

double apply(Code code, double a, double b) {
  switch (code) {
    case Code::kAdd:
      return a + b;
    case Code::kSubtract:
      return a - b;
    case Code::kMultiply:
      return a * b;
    case Code::kFloorDivide:
      return b == 0 ? 0 : std::floor(a / b);
    case Code::kModulo:
      return b == 0 ? 0 : a - b * std::floor(a / b);
    case Code::kDivide:
      return a / b;
    case Code::kMax:
      return b > a ? b : a;
    default:
      return b < a ? b : a;
  }
}

double as_double(const Number& number) {
  return std::visit([](auto value) { return static_cast<double>(value); }, number);
}

Number apply(Code code, const Number& a, const Number& b) {
  const auto* left = std::get_if<std::int64_t>(&a);
  const auto* right = std::get_if<std::int64_t>(&b);
  if (left != nullptr && right != nullptr && code != Code::kDivide) {
    return apply(code, *left, *right);
  }
  const double x = as_double(a), y = as_double(b);
  // The chosen operand keeps its type, as in Python.
  if (code == Code::kMax) return y > x ? b : a;
  if (code == Code::kMin) return y < x ? b : a;
  return apply(code, x, y);
}

/// Binding strength of a term's text.
enum Precedence { kSum = 1, kProduct = 2, kUnary = 3, kAtom = 4 };

struct Term {
  std::string text;
  Precedence precedence;
};

struct Operator {
  std::string_view text;
  Precedence precedence;
};

Operator operator_of(Code code) {
  switch (code) {
    case Code::kAdd:
      return {"+", kSum};
    case Code::kSubtract:
      return {"-", kSum};
    case Code::kMultiply:
      return {"*", kProduct};
    case Code::kFloorDivide:
      return {"//", kProduct};
    case Code::kDivide:
      return {"/", kProduct};
    case Code::kModulo:
      return {"%", kProduct};
    case Code::kMax:
      return {"max", kAtom};
    default:
      return {"min", kAtom};
  }
}

void parenthesize_below(int precedence, Term& term) {
  if (term.precedence >= precedence) return;
  term.text.insert(0, 1, '(');
  term.text += ')';
}

void append_binary(Code code, Term& left, Term right) {
  const Operator op = operator_of(code);
  if (op.precedence == kAtom) {
    left.text = fmt::format("{}({}, {})", op.text, left.text, right.text);
  } else {
    parenthesize_below(op.precedence, left);
    // One level tighter on the right: a - (b - c) is not a - b - c.
    parenthesize_below(op.precedence + 1, right);
    left.text += op.text;
    left.text += right.text;
  }
  left.precedence = op.precedence;
}

std::string print(const std::vector<Step>& steps, const std::vector<std::string>& symbols) {
  std::vector<Term> stack;
  for (const Step& step : steps) {
    if (step.code == Code::kConstant) {
      stack.push_back({std::to_string(step.value), step.value < 0 ? kUnary : kAtom});
    } else if (step.code == Code::kSymbol) {
      stack.push_back({symbols[static_cast<std::size_t>(step.value)], kAtom});
    } else if (step.code == Code::kNegate) {
      parenthesize_below(kAtom, stack.back());
      stack.back() = {"-" + stack.back().text, kUnary};
    } else {
      Term right = std::move(stack.back());
      stack.pop_back();
      append_binary(step.code, stack.back(), std::move(right));
    }
  }
  return std::move(stack.back().text);
}

}  // namespace

/// An expression that is not a plain constant.
struct SizeExpr::Node {
  std::vector<Step> steps;
  std::vector<std::string> symbols;
  bool integer = true;
  std::string text;

  std::int64_t symbol_value(const Step& step, const Sizes& sizes) const {
    const auto found = sizes.find(symbols[static_cast<std::size_t>(step.value)]);
    MOTLEY_CHECK(found != sizes.end());
    return found->second;
  }
};

/// Parses by recursive descent; emits postfix steps and folds constants.
class SizeExprParser {
 public:
  explicit SizeExprParser(std::string_view text) : text_(text) {}

  static SizeExpr symbol(std::string name) {
    SizeExpr::Node node;
    node.steps = {{Code::kSymbol, 0}};
    node.text = name;
    node.symbols.push_back(std::move(name));
    return SizeExpr(std::make_shared<const SizeExpr::Node>(std::move(node)));
  }

  Result<SizeExpr> parse() {
    if (!sum(0) || !at_end()) return failure();
    if (steps_.size() == 1 && steps_[0].code == Code::kConstant) return SizeExpr(steps_[0].value);
    SizeExpr::Node node;
    node.text = print(steps_, symbols_);
    node.integer = std::none_of(steps_.begin(), steps_.end(),
                                [](const Step& step) { return step.code == Code::kDivide; });
    node.steps = std::move(steps_);
    node.symbols = std::move(symbols_);
    return SizeExpr(std::make_shared<const SizeExpr::Node>(std::move(node)));
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool at_end() {
    skip_blanks();
    return at_ == text_.size() || want("an operator or the end");
  }
  bool eat(std::string_view token) {
    skip_blanks();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  /// Records what was wanted here. Returns false, so that parsing stops.
  bool want(std::string wanted) {
    wanted_ = std::move(wanted);
    return false;
  }
  tl::unexpected<Error> failure() const {
    const std::string found =
        at_ < text_.size() ? fmt::format("'{}'", text_.substr(at_, 1)) : "the end";
    return usage_error("graph.size-expr",
                       fmt::format("column {}: found {}, wanted {}", at_ + 1, found, wanted_));
  }

  bool emit(Step step) {
    if (steps_.size() >= kMaxSteps) return want(fmt::format("at most {} terms", kMaxSteps));
    steps_.push_back(step);
    return true;
  }

  /// Applies a binary operator to the last two operands. An operand that ends in a constant is one.
  bool emit_binary(Code code) {
    Step& last = steps_.back();
    const bool constant = last.code == Code::kConstant;
    if (constant && steps_[steps_.size() - 2].code == Code::kConstant && code != Code::kDivide) {
      const std::int64_t right = last.value;
      steps_.pop_back();
      steps_.back().value = apply(code, steps_.back().value, right);
      return true;
    }
    if (code == Code::kAdd || code == Code::kSubtract) {
      const Code opposite = code == Code::kAdd ? Code::kSubtract : Code::kAdd;
      // x + -3 is x - 3: equal expressions have one text, their identity in graphs and profiles.
      if (constant && last.value < 0 && last.value != kSmallest) {
        last.value = -last.value;
        return emit({opposite});
      }
      if (last.code == Code::kNegate) {
        last.code = opposite;
        return true;
      }
    }
    return emit({code});
  }

  bool emit_negate() {
    Step& last = steps_.back();
    if (last.code == Code::kConstant) {
      last.value = negate(last.value);
      return true;
    }
    if (last.code == Code::kNegate) {
      steps_.pop_back();
      return true;
    }
    return emit({Code::kNegate});
  }

  bool sum(int depth) {
    if (!product(depth)) return false;
    while (true) {
      Code code{};
      if (eat("+")) {
        code = Code::kAdd;
      } else if (eat("-")) {
        code = Code::kSubtract;
      } else {
        return true;
      }
      if (!product(depth) || !emit_binary(code)) return false;
    }
  }

  bool product(int depth) {
    if (!unary(depth)) return false;
    while (true) {
      Code code{};
      if (eat("*")) {
        code = Code::kMultiply;
      } else if (eat("//")) {
        code = Code::kFloorDivide;
      } else if (eat("/")) {
        code = Code::kDivide;
      } else if (eat("%")) {
        code = Code::kModulo;
      } else {
        return true;
      }
      if (!unary(depth) || !emit_binary(code)) return false;
    }
  }

  bool unary(int depth) {
    skip_blanks();
    const bool negative = text_.substr(at_).starts_with('-');
    const std::size_t digits = negative ? at_ + 1 : at_;
    if (digits < text_.size() && is_digit(text_[digits])) return constant();
    if (!negative) return atom(depth);
    if (depth >= kMaxDepth) return want(fmt::format("at most {} levels", kMaxDepth));
    ++at_;
    return unary(depth + 1) && emit_negate();
  }

  bool constant() {
    std::int64_t value = 0;
    const char* end = text_.data() + text_.size();
    const auto [after, error] = std::from_chars(text_.data() + at_, end, value);
    if (error != std::errc()) return want("an integer below 2^63");
    at_ = static_cast<std::size_t>(after - text_.data());
    return emit({Code::kConstant, value});
  }

  bool atom(int depth) {
    if (depth >= kMaxDepth) return want(fmt::format("at most {} levels", kMaxDepth));
    if (eat("(")) return sum(depth + 1) && close();
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == begin) return want("a number, a name or '('");
    const std::string_view name = text_.substr(begin, at_ - begin);
    if ((name == "max" || name == "min") && eat("(")) {
      if (!sum(depth + 1)) return false;
      if (!eat(",")) return want("','");
      return sum(depth + 1) && close() && emit_binary(name == "max" ? Code::kMax : Code::kMin);
    }
    auto known = std::find(symbols_.begin(), symbols_.end(), name);
    if (known == symbols_.end()) known = symbols_.emplace(symbols_.end(), name);
    return emit({Code::kSymbol, known - symbols_.begin()});
  }

  bool close() { return eat(")") || want("')'"); }

  static bool is_digit(char c) { return c >= '0' && c <= '9'; }
  static bool is_name(char c) {
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::string wanted_;
  std::vector<Step> steps_;
  std::vector<std::string> symbols_;
};

SizeExpr SizeExpr::symbol(std::string name) { return SizeExprParser::symbol(std::move(name)); }

bool SizeExpr::is_constant() const { return node_ == nullptr || node_->symbols.empty(); }

bool SizeExpr::is_integer() const { return node_ == nullptr || node_->integer; }

bool SizeExpr::depends_on(std::string_view name) const {
  return node_ != nullptr &&
         std::find(node_->symbols.begin(), node_->symbols.end(), name) != node_->symbols.end();
}

std::vector<std::string> SizeExpr::symbols() const {
  return node_ == nullptr ? std::vector<std::string>() : node_->symbols;
}

std::string SizeExpr::text() const {
  return node_ == nullptr ? std::to_string(constant_) : node_->text;
}

bool SizeExpr::operator==(const SizeExpr& other) const {
  if (node_ == nullptr || other.node_ == nullptr) {
    return node_ == other.node_ && constant_ == other.constant_;
  }
  return node_ == other.node_ || node_->text == other.node_->text;
}

std::int64_t SizeExpr::evaluate_integer(const Sizes& sizes) const {
  if (node_ == nullptr) return constant_;
  MOTLEY_CHECK(node_->integer);
  std::int64_t stack[kMaxSteps];  // uninitialised: most expressions have one to three steps
  std::size_t size = 0;
  for (const Step& step : node_->steps) {
    if (step.code == Code::kConstant) {
      stack[size++] = step.value;
    } else if (step.code == Code::kSymbol) {
      stack[size++] = node_->symbol_value(step, sizes);
    } else if (step.code == Code::kNegate) {
      stack[size - 1] = negate(stack[size - 1]);
    } else {
      --size;
      stack[size - 1] = apply(step.code, stack[size - 1], stack[size]);
    }
  }
  return stack[0];
}

Number SizeExpr::evaluate(const Sizes& sizes) const {
  if (is_integer()) return evaluate_integer(sizes);
  std::vector<Number> stack;
  for (const Step& step : node_->steps) {
    if (step.code == Code::kConstant) {
      stack.emplace_back(step.value);
    } else if (step.code == Code::kSymbol) {
      stack.emplace_back(node_->symbol_value(step, sizes));
    } else if (step.code == Code::kNegate) {
      const auto* integer = std::get_if<std::int64_t>(&stack.back());
      stack.back() =
          integer != nullptr ? Number(negate(*integer)) : Number(-as_double(stack.back()));
    } else {
      const Number right = stack.back();
      stack.pop_back();
      stack.back() = apply(step.code, stack.back(), right);
    }
  }
  return stack[0];
}

Result<SizeExpr> parse_size_expr(std::string_view text) { return SizeExprParser(text).parse(); }

}  // namespace motley::graph
