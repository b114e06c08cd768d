#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "peers/hap/hap_form.h"
#include "peers/hap/reference_graph.h"

namespace motley::peers {

/// One way to compute an operator on all devices: {pre} operator {post}.
struct Triple {
  std::vector<std::optional<HapForm>> pre;  ///< of each input; none: not read
  std::vector<HapForm> post;                ///< of each output
  double shared_flops = 0;                  ///< forward and backward, split by share
  double whole_flops = 0;                   ///< forward and backward, on every device
  /// Elements of tensors gathered in the backward pass for the gradients of factored parameters.
  std::vector<double> factors;
};

/// All ways to compute an operator, and its flops (forward and backward) on one device.
struct OperatorRules {
  double flops = 0;
  std::vector<Triple> triples;
};

struct RuleOptions {
  /// Uses rules that keep the result of one device. The released rules have three faults, kept
  /// where this is false: a dimension of length 1 counts as split (so a position table's gradient
  /// is never summed), layer norms lack parameters, "becd,bsec->bsd" once splits a wrong dimension.
  bool sound = false;
  /// Sufficient factors: a linear layer over a slice of the samples may gather its input and its
  /// output's gradient on every device and make the weight's whole gradient there.
  bool sufficient_factors = false;
};

/// Makes the rules of every operator of a graph, by kind. Flops count as in the released planner;
/// backward is twice forward.
///
/// Kinds, inputs and numbers: linear (x, W [out, in], b), sigmoid, relu, dropout, sum,
/// transpose (dimensions a, b), attention (x [L, N, E], in W, in b, out W, out b, mask or nothing),
/// add, scale, mul, layer_norm (x, weight, bias; normalised dimensions), conv2d (x, W, b), flatten
/// (first dimension), log_softmax (dimension), nll_loss (x, target), max_pool2d,
/// adaptive_avg_pool2d, embedding (ids, table), append_cls_token (x, token), get_cls_token,
/// top_2_gating (x, gate; makes dispatch and combine), bsd,bsec->becd, edh,becd->bech,
/// ehd,bech->becd, becd,bsec->bsd (two tensors each).
///
/// Example: linear over x [B, D] has three triples: all identity; x gather(0), W and b identity,
/// giving gather(0); x identity, W and b gather(0), giving gather(1).
///
/// Errors: those of verify; search.hap-operator for a kind without rules, or for inputs, outputs,
/// numbers or ranks that do not match.
Result<std::vector<OperatorRules>> make_rules(const ReferenceGraph& graph,
                                              const RuleOptions& options = {});

}  // namespace motley::peers
