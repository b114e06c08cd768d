#include <array>

#include "peers/hap/rule_writer.h"

namespace motley::peers {
namespace {

/// Forms of operands and result: the equation's split letter, 'I' for whole, 'R' for partial sums.
struct ProductRule {
  char left, right, result;
};

HapForm form_of(char code, std::string_view letters) {
  if (code == 'I') return kWhole;
  if (code == 'R') return kPart;
  return slice(letters.find(code));
}

std::vector<ProductRule> product_rules(std::string_view equation, bool sound) {
  if (equation == "bsd,bsec->becd")
    return {{'b', 'b', 'b'}, {'s', 's', 'R'}, {'d', 'I', 'd'}, {'I', 'e', 'e'}, {'I', 'c', 'c'}};
  if (equation == "edh,becd->bech")
    return {{'e', 'e', 'e'}, {'d', 'd', 'R'}, {'h', 'I', 'h'}, {'I', 'b', 'b'}, {'I', 'c', 'c'}};
  if (equation == "ehd,bech->becd")
    return {{'e', 'e', 'e'}, {'h', 'h', 'R'}, {'d', 'I', 'd'}, {'I', 'b', 'b'}, {'I', 'c', 'c'}};
  // The released last rule splits e, a dimension that the result lacks.
  return {{'b', 'b', 'b'},
          {'e', 'e', 'R'},
          {'c', 'c', 'R'},
          {'d', 'I', 'd'},
          {'I', sound ? 's' : 'e', 's'}};
}

/// Makes the weight's whole gradient on each device: a third of the flops is no longer shared.
void add_sufficient_factors(RuleWriter& rules, std::size_t dimension) {
  if (rules.input(0).shape[dimension] == 1) return;
  Triple triple{{slice(dimension), HapForm::factored(), kWhole}, {slice(dimension)}};
  triple.whole_flops = rules.flops() / 3;
  triple.shared_flops = rules.flops() - triple.whole_flops;
  triple.factors = {rules.elements(), element_count(rules.output())};
  rules.add_triple(std::move(triple));
}

}  // namespace

void make_linear_rules(RuleWriter& rules) {
  rules.set_forward_flops(3 * rules.elements() * rules.size(1, 0));
  rules.count_dimension(1, 0);
  rules.add_whole();
  for (std::size_t d = 0; d + 1 < rules.rank(); ++d) {
    rules.add({slice(d), kWhole, kWhole}, {slice(d)});
    if (rules.options().sufficient_factors) add_sufficient_factors(rules, d);
  }
  rules.add({kWhole, slice(0), slice(0)}, {slice(rules.rank() - 1)});
}

void make_attention_rules(RuleWriter& rules) {
  const double length = rules.size(0, 0), samples = rules.size(0, 1), width = rules.size(0, 2);
  rules.set_forward_flops(length * samples * length * (3 * width + 5 + 3 * width));
  rules.add_whole();
  std::vector<std::optional<HapForm>> pre(rules.inputs(), kWhole);
  pre[0] = slice(1);
  rules.add(std::move(pre), {slice(1)});
}

void make_conv2d_rules(RuleWriter& rules) {
  rules.set_forward_flops(3 * rules.size(1, 0) * rules.elements());
  rules.count_dimension(1, 0);
  rules.add_whole();
  rules.add({slice(0), kWhole, kWhole}, {slice(0)});
  rules.add({kWhole, slice(0), slice(0)}, {slice(1)});
}

void make_max_pool2d_rules(RuleWriter& rules) {
  rules.set_forward_flops(3 * rules.elements());
  rules.add_whole();
  rules.add({slice(0)}, {slice(0)});
  rules.add({slice(1)}, {slice(1)});
}

void make_adaptive_avg_pool2d_rules(RuleWriter& rules) {
  rules.set_forward_flops(3 * rules.elements());
  rules.add_whole();
  rules.add({slice(0)}, {slice(0)});
}

void make_nll_loss_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.elements());
  rules.add_whole();
  rules.add({slice(0), slice(0)}, {kPart});
  for (std::size_t d = 2; d < rules.rank(); ++d) rules.add({slice(d), slice(d - 1)}, {kPart});
}

void make_embedding_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.elements());
  rules.add({slice(0), kWhole}, {slice(0)});
  rules.add({slice(1), kWhole}, {slice(1)});
  rules.add({kWhole, slice(1)}, {slice(2)});
}

void make_top_2_gating_rules(RuleWriter& rules) {
  rules.set_forward_flops(10 * rules.elements());
  rules.add_whole();
  rules.add({slice(0), kWhole}, {slice(0), slice(0)});
}

void make_einsum_rules(RuleWriter& rules) {
  const std::string_view equation = rules.kind();
  const std::size_t comma = equation.find(','), arrow = equation.find("->");
  const std::string_view left = equation.substr(0, comma);
  const std::string_view right = equation.substr(comma + 1, arrow - comma - 1);
  double flops = 3 * rules.elements();
  for (std::size_t d = 0; d < right.size(); ++d) {
    if (left.find(right[d]) != std::string_view::npos) continue;
    flops *= rules.size(1, d);
    rules.count_dimension(1, d);
  }
  rules.set_forward_flops(flops);
  rules.add_whole();
  for (const ProductRule& rule : product_rules(equation, rules.options().sound))
    rules.add({form_of(rule.left, left), form_of(rule.right, right)},
              {form_of(rule.result, equation.substr(arrow + 2))});
}

}  // namespace motley::peers
