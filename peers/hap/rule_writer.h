#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "peers/hap/rules.h"

namespace motley::peers {

// Forms in rules: whole, a partial sum, a slice along a dimension.
constexpr HapForm kWhole = HapForm::identity();
constexpr HapForm kPart = HapForm::reduce();
constexpr HapForm slice(std::size_t dimension) { return HapForm::gather(dimension); }

/// Collects one operator's triples. Flops are shared when a counted dimension is split.
class RuleWriter {
 public:
  RuleWriter(const ReferenceGraph& graph, const ReferenceOperator& op, const RuleOptions& options)
      : graph_(graph), op_(op), options_(options), counted_(op.inputs.size(), 0) {
    count_dimensions_of(0);
  }

  const RuleOptions& options() const { return options_; }
  std::string_view kind() const { return op_.kind; }
  const ReferenceTensor& input(std::size_t i) const {
    return graph_.tensors[op_.inputs[i].index()];
  }
  const ReferenceTensor& output() const { return graph_.tensors[op_.outputs[0].index()]; }
  std::size_t inputs() const { return op_.inputs.size(); }
  std::size_t rank(std::size_t i = 0) const { return input(i).shape.size(); }
  double size(std::size_t i, std::size_t dimension) const {
    return static_cast<double>(input(i).shape[dimension]);
  }
  double elements(std::size_t i = 0) const { return element_count(input(i)); }
  std::size_t number(std::size_t i) const { return static_cast<std::size_t>(op_.numbers[i]); }

  /// Sets forward flops; the formula counts all dimensions of input 0 and those added here.
  void set_forward_flops(double flops) { rules_.flops = 3 * flops; }
  void count_dimension(std::size_t i, std::size_t dimension) { counted_[i] |= 1u << dimension; }
  void count_dimensions_of(std::size_t i) {
    for (std::size_t d = 0; d < rank(i); ++d) count_dimension(i, d);
  }

  /// Adds the operator itself: everything whole.
  void add_whole() {
    const std::size_t outputs = op_.outputs.size();
    add(std::vector<std::optional<HapForm>>(inputs(), HapForm::identity()),
        std::vector<HapForm>(outputs, HapForm::identity()));
  }
  void add(std::vector<std::optional<HapForm>> pre, std::vector<HapForm> post) {
    const bool is_split = splits_counted(pre);
    add_triple({std::move(pre),
                std::move(post),
                is_split ? rules_.flops : 0,
                is_split ? 0 : rules_.flops,
                {}});
  }
  void add_triple(Triple triple) {
    if (!options_.sound || !splits_single(triple)) rules_.triples.push_back(std::move(triple));
  }
  double flops() const { return rules_.flops; }
  OperatorRules take() { return std::move(rules_); }

 private:
  bool splits_counted(const std::vector<std::optional<HapForm>>& pre) const {
    for (std::size_t i = 0; i < pre.size(); ++i)
      if (pre[i] && pre[i]->is_gather() && (counted_[i] >> pre[i]->dimension() & 1u) &&
          input(i).shape[pre[i]->dimension()] > 1)
        return true;
    return false;
  }
  /// Returns whether a triple splits a dimension of length 1.
  bool splits_single(const Triple& triple) const {
    const auto splits = [this](TensorId id, HapForm form) {
      return form.is_gather() && graph_.tensors[id.index()].shape[form.dimension()] == 1;
    };
    for (std::size_t i = 0; i < triple.pre.size(); ++i)
      if (triple.pre[i] && splits(op_.inputs[i], *triple.pre[i])) return true;
    for (std::size_t i = 0; i < triple.post.size(); ++i)
      if (splits(op_.outputs[i], triple.post[i])) return true;
    return false;
  }

  const ReferenceGraph& graph_;
  const ReferenceOperator& op_;
  const RuleOptions& options_;
  std::vector<std::uint32_t> counted_;  // bit d of entry i: the formula counts dimension d
  OperatorRules rules_;
};

// Rule makers, by family.
void make_pointwise_rules(RuleWriter& rules);  ///< sigmoid, relu, dropout: 3 flops per element
void make_scale_rules(RuleWriter& rules);
void make_add_rules(RuleWriter& rules);
void make_mul_rules(RuleWriter& rules);
void make_sum_rules(RuleWriter& rules);
void make_transpose_rules(RuleWriter& rules);
void make_flatten_rules(RuleWriter& rules);
void make_log_softmax_rules(RuleWriter& rules);
void make_layer_norm_rules(RuleWriter& rules);
void make_append_cls_token_rules(RuleWriter& rules);
void make_get_cls_token_rules(RuleWriter& rules);
void make_linear_rules(RuleWriter& rules);
void make_attention_rules(RuleWriter& rules);
void make_conv2d_rules(RuleWriter& rules);
void make_max_pool2d_rules(RuleWriter& rules);
void make_adaptive_avg_pool2d_rules(RuleWriter& rules);
void make_nll_loss_rules(RuleWriter& rules);
void make_embedding_rules(RuleWriter& rules);
void make_top_2_gating_rules(RuleWriter& rules);
void make_einsum_rules(RuleWriter& rules);  ///< kind is the equation

}  // namespace motley::peers
