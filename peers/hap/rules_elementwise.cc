#include "peers/hap/rule_writer.h"

namespace motley::peers {

void make_pointwise_rules(RuleWriter& rules) {
  rules.set_forward_flops(3 * rules.elements());
  rules.add_whole();
  for (std::size_t d = 0; d < rules.rank(); ++d) rules.add({slice(d)}, {slice(d)});
}

void make_scale_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.elements());
  rules.add_whole();
  for (std::size_t d = 0; d < rules.rank(); ++d) rules.add({slice(d)}, {slice(d)});
  rules.add({kPart}, {kPart});
}

void make_add_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.elements());
  rules.add_whole();
  rules.add({kPart, kPart}, {kPart});
  for (std::size_t d = 0; d < rules.rank(); ++d) {
    // The released rule splits a dimension of length 1, which every device then has whole.
    const auto form = [&rules, d](std::size_t i) {
      const bool is_broadcast = rules.input(i).shape[d] == 1 && rules.output().shape[d] > 1;
      return is_broadcast && rules.options().sound ? kWhole : slice(d);
    };
    rules.add({form(0), form(1)}, {slice(d)});
  }
}

void make_mul_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.elements());
  rules.add_whole();
  for (std::size_t d = 0; d < rules.rank(); ++d) rules.add({slice(d), slice(d)}, {slice(d)});
  rules.add({kPart, kWhole}, {kPart});
  rules.add({kWhole, kPart}, {kPart});
}

void make_sum_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.elements());
  rules.add_whole();
  for (std::size_t d = 0; d < rules.rank(); ++d) rules.add({slice(d)}, {kPart});
  rules.add({kPart}, {kPart});
}

void make_transpose_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.elements());
  rules.add_whole();
  const std::size_t a = rules.number(0), b = rules.number(1);
  rules.add({kPart}, {kPart});
  for (std::size_t d = 0; d < rules.rank(); ++d)
    rules.add({slice(d)}, {slice(d == a ? b : d == b ? a : d)});
}

void make_flatten_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.elements());
  rules.add_whole();
  for (std::size_t d = 0; d < rules.number(0); ++d) rules.add({slice(d)}, {slice(d)});
}

void make_log_softmax_rules(RuleWriter& rules) {
  rules.set_forward_flops(15 * rules.elements());
  rules.add_whole();
  for (std::size_t d = 0; d < rules.rank(); ++d)
    if (d != rules.number(0)) rules.add({slice(d)}, {slice(d)});
}

void make_layer_norm_rules(RuleWriter& rules) {
  rules.set_forward_flops(10 * rules.elements());
  // The released planner omits weight and bias.
  std::optional<HapForm> affine;
  if (rules.options().sound) affine = kWhole;
  rules.add({kWhole, affine, affine}, {kWhole});
  for (std::size_t d = 0; d + rules.number(0) < rules.rank(); ++d)
    rules.add({slice(d), affine, affine}, {slice(d)});
}

void make_append_cls_token_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.size(0, 0) * rules.size(0, 2));
  rules.add_whole();
  rules.add({slice(0), kWhole}, {slice(0)});
  rules.add({slice(2), slice(2)}, {slice(2)});
}

void make_get_cls_token_rules(RuleWriter& rules) {
  rules.set_forward_flops(rules.size(0, 0) * rules.size(0, 2));
  rules.add_whole();
  rules.add({slice(0)}, {slice(0)});
  rules.add({slice(2)}, {slice(1)});
}

}  // namespace motley::peers
