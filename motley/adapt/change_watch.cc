#include "motley/adapt/change_watch.h"

#include <algorithm>
#include <cmath>

#include "motley/base/json_fields.h"

namespace motley::adapt {
namespace {

constexpr double kAllowance = 1, kMostResidual = 5, kThreshold = 7;
/// Where a residual is far, the least evidence of one, and the residuals assumed per isolated one.
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
  // The evidence that a far residual is not isolated.
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

Json ChangeWatch::state() const { return fields_to_json(*this); }

Result<void> ChangeWatch::restore(const Json& json, const std::string& where) {
  return restore_fields(json, where, *this);
}

Result<void> ChangeWatch::check(const std::string& where) const {
  if (std::min({above_.far, below_.far, seen_, alone_}) >= 0) return {};
  return usage_error("policy.state", where + ": wanted counts");
}

}  // namespace motley::adapt
