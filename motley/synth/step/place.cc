#include "motley/synth/step/place.h"

#include <algorithm>
#include <numeric>

#include "motley/plan/shares.h"

namespace motley::synth {

Parts::Parts(const std::vector<double>& shares)
    : shares_(shares),
      keeper_(static_cast<std::size_t>(std::max_element(shares.begin(), shares.end()) -
                                       shares.begin())) {}

const Shape& Parts::of(std::int64_t extent) {
  Shape& parts = of_[extent];
  if (parts.empty()) parts = plan::round_shares(shares_, extent);
  return parts;
}

std::int64_t Parts::begin(std::int64_t extent, std::size_t rank) {
  const Shape& parts = of(extent);
  return std::accumulate(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::int64_t{0});
}

std::int64_t Place::own(std::int64_t extent) {
  owns_.insert(extent);
  return parts_->of(extent)[rank_];
}

std::int64_t Place::begin(std::int64_t extent) {
  begins_.insert(extent);
  return parts_->begin(extent, rank_);
}

bool Place::is_keeper() {
  asked_keeper_ = true;
  return rank_ == parts_->keeper();
}

bool Place::answers_identical(std::size_t rank, Identical what) const {
  if (rank == rank_) return true;
  if (asked_keeper_ && (rank == parts_->keeper() || rank_ == parts_->keeper())) return false;
  const auto has_as_much = [&](std::int64_t extent) {
    return parts_->of(extent)[rank] == parts_->of(extent)[rank_];
  };
  if (!std::all_of(owns_.begin(), owns_.end(), has_as_much)) return false;
  return what == Identical::kTimes ||
         std::all_of(begins_.begin(), begins_.end(), [&](std::int64_t extent) {
           return parts_->begin(extent, rank) == parts_->begin(extent, rank_);
         });
}

}  // namespace motley::synth
