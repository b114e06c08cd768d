#pragma once

#include <string>
#include <string_view>

#include "motley/base/result.h"

namespace motley::adapt {

/// How the learning rate follows the batch. Optimizer moments stay: they average gradients with the
/// same mean, and a batch changes only their noise.
enum class LearningRateRule {
  kAdaScale,    ///< for SGD: the gain (below), 1 to B/B0 (Johnson et al., ICML 2020)
  kSquareRoot,  ///< for Adam and AdamW: sqrt(B/B0)
  kLinear,      ///< B/B0
  kNone,        ///< 1
};

/// Parses "adascale", "sqrt", "linear" or "none". Usage error `adapt.rule`.
Result<LearningRateRule> parse_rule(std::string_view text, const std::string& where);
std::string_view rule_name(LearningRateRule rule);

/// Returns the steps of initial batch B0 that a step of batch B is worth at noise scale `noise`:
///
///   r = (S/B0 + |G|^2) / (S/B + |G|^2) = (B/B0) (noise + B0) / (noise + B)
///
/// 1 at B = B0 and without noise; B/B0 at infinite noise. Requires B, B0 > 0, noise >= 0.
double batch_gain(double batch, double initial_batch, double noise);

/// Returns the factor for all learning rates of the initial batch.
double lr_factor(LearningRateRule rule, double batch, double initial_batch, double noise);

/// Returns the factor nearest to `wanted` that a change of at most `most` times, up or down,
/// reaches from `now`. Requires now, wanted > 0, most > 1.
double bounded_factor(double now, double wanted, double most);

}  // namespace motley::adapt
