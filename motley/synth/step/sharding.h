#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "motley/graph/rules/strategy.h"
#include "motley/plan/plan.h"

namespace motley::synth {

struct LowerOptions {
  plan::Recipe recipe;
  plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal;
  Bytes bucket_bytes{4 << 20};
  plan::BatchNormSpan batch_norm_span = plan::BatchNormSpan::kStep;
  plan::Updates updates = plan::Updates::kNative;
  bool operator==(const LowerOptions&) const = default;
};
inline LowerOptions options_of(const plan::Plan& plan) {
  return {plan.recipe, plan.batch_norm, plan.bucket_bytes, plan.batch_norm_span, plan.updates};
}

/// How one region runs the whole graph on several devices: a strategy per operator and a form per
/// parameter. Everything is cut by the same shares, rounded for each extent (plan::round_shares):
/// samples, heads, channels, rows of a table.
struct Sharding {
  std::vector<std::string> devices;  ///< by rank; names
  std::vector<double> shares;        ///< by rank, >= 0, not all 0
  std::int64_t batch = 0;            ///< samples of a micro-batch, which operators split
  std::int64_t micro_batches = 1;    ///< of a step, one after the other
  std::int64_t turns = 1;            ///< micro-batches in flight at once (plan::Replica)
  std::vector<graph::Strategy> ops;  ///< by operator
  std::vector<graph::Form> sources;  ///< by value: parameters as kept, inputs cut; else whole
  std::vector<plan::ExchangeWay> exchanges = {};  ///< except native ones
  std::vector<plan::OpRange> recomputes = {};  ///< recomputed in the backward pass (plan::Region)
  std::set<ValueId> gathered_again = {};       ///< sharded parameters (plan::KeptParameter)
  bool operator==(const Sharding&) const = default;
};

}  // namespace motley::synth
