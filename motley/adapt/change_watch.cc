#include "motley/adapt/change_watch.h"

#include <algorithm>
#include <cmath>

#include "motley/base/json.h"

namespace motley::adapt {
namespace {

constexpr double kAllowance = 1, kMostResidual = 5, kThreshold = 7;
/// What is far, what one of these says at least, and residuals among which one is believed to be.
constexpr double kFar = 3, kLeastEvidence = 1.5, kSeen = 55;

}  // namespace

bool ChangeWatch::Side::passes(double residual, double most, double& alone) {
  sum += std::min(residual - kAllowance, most);
  far += residual > kFar;
  ++count;
  if (sum > 0) return sum > kThreshold;
  alone += far;
  *this = {};
  return false;
}

std::size_t ChangeWatch::observe(double residual) {
  // What a far residual says against one that came alone.
  const double most = std::clamp(std::log((seen_ + kSeen) / (alone_ + 1)), kLeastEvidence,
                                 kMostResidual - kAllowance);
  seen_ += 1;
  const bool rises = above_.passes(residual, most, alone_);
  const bool falls = below_.passes(-residual, most, alone_);
  if (!rises && !falls) return 0;
  const std::size_t count = rises ? above_.count : below_.count;
  above_ = below_ = {};
  return count;
}

Json ChangeWatch::state() const {
  return {{"above", above_.sum},
          {"above_count", above_.count},
          {"above_far", above_.far},
          {"below", below_.sum},
          {"below_count", below_.count},
          {"below_far", below_.far},
          {"seen", seen_},
          {"alone", alone_}};
}

Result<void> ChangeWatch::restore(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(above_.sum, object.number("above"));
  MOTLEY_ASSIGN(const std::int64_t above, object.integer("above_count"));
  MOTLEY_ASSIGN(below_.sum, object.number("below"));
  MOTLEY_ASSIGN(const std::int64_t below, object.integer("below_count"));
  above_.count = static_cast<std::size_t>(above);
  below_.count = static_cast<std::size_t>(below);
  if (object.has("seen")) {  // states of before have none
    MOTLEY_ASSIGN(above_.far, object.number("above_far"));
    MOTLEY_ASSIGN(below_.far, object.number("below_far"));
    MOTLEY_ASSIGN(seen_, object.number("seen"));
    MOTLEY_ASSIGN(alone_, object.number("alone"));
    if (std::min({above_.far, below_.far, seen_, alone_}) < 0)
      return usage_error("policy.state", where + ": wanted counts");
  }
  return object.refuse_unknown();
}

}  // namespace motley::adapt
