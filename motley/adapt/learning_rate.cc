#include "motley/adapt/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace motley::adapt {
namespace {

constexpr std::pair<LearningRateRule, std::string_view> kRules[] = {
    {LearningRateRule::kAdaScale, "adascale"},
    {LearningRateRule::kSquareRoot, "sqrt"},
    {LearningRateRule::kLinear, "linear"},
    {LearningRateRule::kNone, "none"},
};

}  // namespace

Result<LearningRateRule> parse_rule(std::string_view text, const std::string& where) {
  for (const auto& [rule, name] : kRules)
    if (name == text) return rule;
  return usage_error("adapt.rule", where + ": found learning-rate rule '" + std::string(text) +
                                       "', wanted one of adascale, sqrt, linear, none");
}

std::string_view rule_name(LearningRateRule rule) {
  for (const auto& [each, name] : kRules)
    if (each == rule) return name;
  return "none";
}

double batch_gain(double batch, double initial_batch, double noise) {
  const double ratio = batch / initial_batch;
  return std::isinf(noise) ? ratio : ratio * (noise + initial_batch) / (noise + batch);
}

double lr_factor(LearningRateRule rule, double batch, double initial_batch, double noise) {
  switch (rule) {
    case LearningRateRule::kAdaScale:
      return batch_gain(batch, initial_batch, noise);
    case LearningRateRule::kSquareRoot:
      return std::sqrt(batch / initial_batch);
    case LearningRateRule::kLinear:
      return batch / initial_batch;
    case LearningRateRule::kNone:
      break;
  }
  return 1;
}

double bounded_factor(double now, double wanted, double most) {
  return std::clamp(wanted, now / most, now * most);
}

}  // namespace motley::adapt
