#include "motley/adapt/change_watch.h"

#include <algorithm>

#include "motley/base/json.h"

namespace motley::adapt {
namespace {

constexpr double kAllowance = 1, kMostResidual = 5, kThreshold = 7;

}  // namespace

bool ChangeWatch::Side::passes(double residual) {
  sum += std::min(residual, kMostResidual) - kAllowance;
  ++count;
  if (sum <= 0) *this = {};
  return sum > kThreshold;
}

std::size_t ChangeWatch::observe(double residual) {
  const bool rises = above_.passes(residual), falls = below_.passes(-residual);
  if (!rises && !falls) return 0;
  const std::size_t count = rises ? above_.count : below_.count;
  above_ = below_ = {};
  return count;
}

Json ChangeWatch::state() const {
  return {{"above", above_.sum},
          {"above_count", above_.count},
          {"below", below_.sum},
          {"below_count", below_.count}};
}

Result<void> ChangeWatch::restore(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(above_.sum, object.number("above"));
  MOTLEY_ASSIGN(const std::int64_t above, object.integer("above_count"));
  MOTLEY_ASSIGN(below_.sum, object.number("below"));
  MOTLEY_ASSIGN(const std::int64_t below, object.integer("below_count"));
  above_.count = static_cast<std::size_t>(above);
  below_.count = static_cast<std::size_t>(below);
  return object.refuse_unknown();
}

}  // namespace motley::adapt
