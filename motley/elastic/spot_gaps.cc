#include "motley/elastic/spot_gaps.h"

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

}  // namespace motley::elastic
