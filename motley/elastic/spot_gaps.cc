#include "motley/elastic/spot_gaps.h"

#include <algorithm>

#include "motley/base/json.h"

namespace motley::elastic {
namespace {

constexpr double kUsualGaps = 1, kUsualGap = 14400;

}  // namespace

void SpotGaps::begin(Seconds now) {
  if (!since_) since_ = now;
}

void SpotGaps::end(Seconds now) {
  if (since_) gaps_.push_back((now - *since_).value);
  since_.reset();
}

double SpotGaps::returns_per_second(Seconds now) const {
  double seen = kUsualGaps, seconds = kUsualGaps * kUsualGap;
  for (const double gap : gaps_) {
    seen += 1;
    seconds += gap;
  }
  if (since_) seconds += (now - *since_).value;
  return seen / seconds;
}

Json SpotGaps::to_json() const {
  return {{"gaps", gaps_}, {"gap_since", since_ ? Json(since_->value) : Json(nullptr)}};
}

Result<SpotGaps> SpotGaps::from_json(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  MOTLEY_ASSIGN(const Json* gaps, object.member("gaps"));
  MOTLEY_ASSIGN(const Json* since, object.member("gap_since"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  const bool fits =
      gaps->is_array() && (since->is_null() || since->is_number()) &&
      std::all_of(gaps->begin(), gaps->end(), [](const Json& gap) { return gap.is_number(); });
  if (!fits) return usage_error("policy.state", where + ": gaps are no numbers");
  SpotGaps read;
  read.gaps_ = gaps->get<std::vector<double>>();
  if (since->is_number()) read.since_ = Seconds(since->get<double>());
  return read;
}

}  // namespace motley::elastic
