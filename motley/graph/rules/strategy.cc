#include "motley/graph/rules/strategy.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/line_cursor.h"

namespace motley::graph {
namespace {

constexpr std::int64_t kMostDims = 64;  // as in PyTorch

std::int64_t size_of(const ShardingRule& rule, int factor) {
  return rule.factors[static_cast<std::size_t>(factor)].size;
}

/// Returns the form of a tensor with one factor split; empty if it lacks the factor.
std::optional<Form> cut_form(const ShardingRule& rule, const TensorFactors& tensor, int factor,
                             std::int64_t outer, std::int64_t inner) {
  for (std::size_t d = 0; d < tensor.size(); ++d) {
    Form form{FormKind::kSharded, static_cast<int>(d), outer,
              size_of(rule, factor) / (outer * inner), inner};
    bool is_found = false;
    for (const int id : tensor[d]) {
      if (id == factor) {
        is_found = true;
      } else {
        (is_found ? form.inner : form.outer) *= size_of(rule, id);
      }
    }
    if (is_found) return form;
  }
  return std::nullopt;
}

/// Returns the operands of terms that must be partial because another term sums over the factor.
std::vector<int> partial_operands(const ShardingRule& rule, int factor) {
  const auto has = [&](const std::vector<int>& term) {
    return std::any_of(term.begin(), term.end(), [&](int operand) {
      return has_factor(rule.operand_factors[static_cast<std::size_t>(operand)], factor);
    });
  };
  std::vector<int> operands;
  if (std::none_of(rule.terms.begin(), rule.terms.end(), has)) return operands;
  for (const std::vector<int>& term : rule.terms)
    if (!has(term)) operands.push_back(term.front());
  return operands;
}

}  // namespace

std::string print_form(const Form& form) {
  if (form.kind == FormKind::kWhole) return "R";
  if (form.kind == FormKind::kPartial) return "P";
  if (form.outer == 1 && form.inner == 1) return fmt::format("S({}: {})", form.dim, form.extent);
  return fmt::format("S({}: {}*{}*{})", form.dim, form.outer, form.extent, form.inner);
}

std::optional<Form> parse_form(std::string_view text) {
  if (text == "R") return kWholeForm;
  if (text == "P") return kPartialForm;
  LineCursor line(text);
  std::int64_t dim = 0, first = 0, extent = 0, inner = 1;
  if (!line.take_word("S") || !line.expect('(') || !line.expect_integer(dim) || !line.expect(':') ||
      !line.expect_integer(first))
    return std::nullopt;
  Form form{FormKind::kSharded, static_cast<int>(dim), 1, first, 1};
  if (line.take('*')) {
    if (!line.expect_integer(extent) || !line.expect('*') || !line.expect_integer(inner))
      return std::nullopt;
    form.outer = first;
    form.extent = extent;
    form.inner = inner;
  }
  const bool is_sound = dim >= 0 && dim <= kMostDims && form.outer > 0 && form.extent > 0 &&
                        form.inner > 0 && line.expect(')') && line.at_end();
  return is_sound ? std::optional<Form>(form) : std::nullopt;
}

Slab slab_of(const std::vector<std::int64_t>& shape, const Form& form) {
  Slab slab{form.outer, form.extent, form.inner};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (static_cast<int>(d) < form.dim) slab.before *= shape[d];
    if (static_cast<int>(d) > form.dim) slab.after *= shape[d];
  }
  return slab;
}

Strategy whole_strategy(const ShardingRule& rule) {
  Strategy strategy;
  strategy.operands.resize(rule.operand_factors.size());
  strategy.results.resize(rule.result_factors.size());
  return strategy;
}

std::optional<Strategy> split_strategy(const ShardingRule& rule, int factor, std::int64_t outer,
                                       std::int64_t inner) {
  const Factor& split = rule.factors[static_cast<std::size_t>(factor)];
  if (split.split == Split::kNever || split.size % (outer * inner) != 0) return std::nullopt;
  Strategy strategy = whole_strategy(rule);
  strategy.factor = factor;
  strategy.outer = outer;
  strategy.inner = inner;
  for (std::size_t i = 0; i < strategy.operands.size(); ++i)
    strategy.operands[i] =
        cut_form(rule, rule.operand_factors[i], factor, outer, inner).value_or(kWholeForm);
  bool sums = false;
  for (std::size_t r = 0; r < strategy.results.size(); ++r) {
    const std::pair<int, int> place(static_cast<int>(r), factor);
    const bool is_independent = std::find(rule.independent.begin(), rule.independent.end(),
                                          place) != rule.independent.end();
    const auto form = cut_form(rule, rule.result_factors[r], factor, outer, inner);
    strategy.results[r] = form ? *form : is_independent ? kWholeForm : kPartialForm;
    sums = sums || strategy.results[r].kind == FormKind::kPartial;
  }
  if (sums)
    for (const int operand : partial_operands(rule, factor))
      strategy.operands[static_cast<std::size_t>(operand)] = kPartialForm;
  return strategy;
}

namespace {

/// Returns the split of the factor that a tensor's sharded form cuts: the one that holds the whole
/// extent. Factors before it divide outer, those after it divide inner.
std::optional<Strategy> split_as(const ShardingRule& rule, const TensorFactors& tensor,
                                 const Form& form) {
  if (form.kind != FormKind::kSharded) return std::nullopt;
  const DimFactors& dim = tensor[static_cast<std::size_t>(form.dim)];
  for (std::size_t f = 0; f < dim.size(); ++f) {
    std::int64_t before = 1, after = 1;
    for (std::size_t g = 0; g < dim.size(); ++g)
      if (g != f) (g < f ? before : after) *= size_of(rule, dim[g]);
    if (form.outer % before != 0 || form.inner % after != 0) continue;
    const std::int64_t outer = form.outer / before, inner = form.inner / after;
    if (outer * form.extent * inner == size_of(rule, dim[f]))
      return split_strategy(rule, dim[f], outer, inner);
  }
  return std::nullopt;
}

}  // namespace

std::optional<Strategy> follow(const ShardingRule& rule, int operand, const Form& form) {
  return split_as(rule, rule.operand_factors[static_cast<std::size_t>(operand)], form);
}

std::optional<Strategy> follow_result(const ShardingRule& rule, int result, const Form& form) {
  return split_as(rule, rule.result_factors[static_cast<std::size_t>(result)], form);
}

std::vector<Strategy> linear_strategies(const ShardingRule& rule) {
  std::vector<Strategy> ways;
  if (rule.terms.empty()) return ways;
  Strategy first = whole_strategy(rule);
  for (Form& form : first.results) form = kPartialForm;
  ways.push_back(first);
  for (const std::vector<int>& term : rule.terms) {
    std::vector<Strategy> next;
    for (const Strategy& way : ways)
      for (const int operand : term) {
        next.push_back(way);
        next.back().operands[static_cast<std::size_t>(operand)] = kPartialForm;
      }
    ways = std::move(next);
  }
  return ways;
}

}  // namespace motley::graph
