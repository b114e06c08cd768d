#include "peers/hap/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "peers/hap/rule_writer.h"

namespace motley::peers {
namespace {

constexpr int kAny = -1;  // rank 1 or more

/// An operator's signature and its rule maker.
struct Kind {
  std::string_view name;
  void (*write)(RuleWriter&);
  std::vector<int> ranks;    // of the inputs
  std::size_t numbers = 0;   // each a dimension of the first input
  std::size_t optional = 0;  // trailing inputs that may be absent
  std::size_t outputs = 1;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"linear", make_linear_rules, {kAny, 2, 1}},
      {"sigmoid", make_pointwise_rules, {kAny}},
      {"relu", make_pointwise_rules, {kAny}},
      {"dropout", make_pointwise_rules, {kAny}},
      {"scale", make_scale_rules, {kAny}},
      {"add", make_add_rules, {kAny, kAny}},
      {"mul", make_mul_rules, {kAny, kAny}},
      {"sum", make_sum_rules, {kAny}},
      {"transpose", make_transpose_rules, {kAny}, 2},
      {"flatten", make_flatten_rules, {kAny}, 1},
      {"log_softmax", make_log_softmax_rules, {kAny}, 1},
      {"layer_norm", make_layer_norm_rules, {kAny, kAny, kAny}, 1},
      {"append_cls_token", make_append_cls_token_rules, {3, 3}},
      {"get_cls_token", make_get_cls_token_rules, {3}},
      {"attention", make_attention_rules, {3, 2, 1, 2, 1, 2}, 0, 1},
      {"conv2d", make_conv2d_rules, {4, 4, 1}},
      {"max_pool2d", make_max_pool2d_rules, {4}},
      {"adaptive_avg_pool2d", make_adaptive_avg_pool2d_rules, {4}},
      {"nll_loss", make_nll_loss_rules, {kAny, kAny}},
      {"embedding", make_embedding_rules, {2, 2}},
      {"top_2_gating", make_top_2_gating_rules, {3, 2}, 0, 0, 2},
      {"bsd,bsec->becd", make_einsum_rules, {3, 4}},
      {"edh,becd->bech", make_einsum_rules, {3, 4}},
      {"ehd,bech->becd", make_einsum_rules, {3, 4}},
      {"becd,bsec->bsd", make_einsum_rules, {4, 4}},
  };
  return all;
}

/// Describes how `op` differs from its kind; empty when it fits.
std::string misfit(const ReferenceGraph& graph, const ReferenceOperator& op, const Kind& kind) {
  const auto rank = [&graph](TensorId id) { return graph.tensors[id.index()].shape.size(); };
  const std::size_t least = kind.ranks.size() - kind.optional;
  if (op.inputs.size() < least || op.inputs.size() > kind.ranks.size())
    return fmt::format("{} inputs, wanted {}", op.inputs.size(), least);
  if (op.outputs.size() != kind.outputs)
    return fmt::format("{} outputs, wanted {}", op.outputs.size(), kind.outputs);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const bool fits = kind.ranks[i] == kAny ? rank(op.inputs[i]) > 0
                                            : rank(op.inputs[i]) == std::size_t(kind.ranks[i]);
    if (!fits) return fmt::format("input {} has {} dimensions", i, rank(op.inputs[i]));
  }
  if (op.numbers.size() != kind.numbers)
    return fmt::format("{} numbers, wanted {}", op.numbers.size(), kind.numbers);
  for (const std::int64_t number : op.numbers)
    if (number < 0 || number >= static_cast<std::int64_t>(rank(op.inputs[0])))
      return fmt::format("number {} is no dimension of its input", number);
  const bool is_paired = op.kind == "add" || op.kind == "mul";
  if (is_paired && rank(op.inputs[0]) != rank(op.inputs[1])) return "inputs of unequal ranks";
  if (op.kind == "nll_loss" && rank(op.inputs[0]) != rank(op.inputs[1]) + 1)
    return "wanted a target of one dimension less than its input";
  return {};
}

}  // namespace

Result<std::vector<OperatorRules>> make_rules(const ReferenceGraph& graph,
                                              const RuleOptions& options) {
  MOTLEY_RETURN_IF_ERROR(verify(graph));
  std::vector<OperatorRules> result;
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    const ReferenceOperator& op = graph.operators[i];
    const auto kind = std::find_if(kinds().begin(), kinds().end(),
                                   [&op](const Kind& k) { return k.name == op.kind; });
    if (kind == kinds().end())
      return usage_error("search.hap-operator",
                         fmt::format("operator {} ({}): no rules for this kind", i, op.kind));
    if (const std::string found = misfit(graph, op, *kind); !found.empty())
      return usage_error("search.hap-operator",
                         fmt::format("operator {} ({}): {}", i, op.kind, found));
    RuleWriter writer(graph, op, options);
    kind->write(writer);
    result.push_back(writer.take());
  }
  return result;
}

}  // namespace motley::peers
