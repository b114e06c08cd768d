#include "peers/steps/pipeline_span.h"

#include <algorithm>

#include "motley/base/check.h"

namespace motley::peers {
namespace {

/// Runs the stages' operations in order as soon as their inputs are ready.
class Pipeline {
 public:
  Pipeline(const std::vector<MicroBatchTimes>& stages, Seconds transfer, std::int64_t micro_batches)
      : stages_(stages),
        transfer_(transfer.value),
        count_(static_cast<std::size_t>(micro_batches)),
        forward_end_(stages.size() * count_),
        backward_end_(stages.size() * count_),
        places_(stages.size()) {}

  double span() {
    // The last stage needs all others, so each round ends at least one more of its operations.
    while (places_.front().backwards < count_) {
      for (std::size_t s = 0; s < stages_.size(); ++s) {
        while (advance(s)) continue;
      }
    }
    double end = 0;
    for (const Place& place : places_) end = std::max(end, place.free_at);
    return end;
  }

 private:
  struct Place {
    std::size_t forwards = 0, backwards = 0;  // finished
    double free_at = 0;
  };

  bool forward_is_next(std::size_t s) const {
    const auto& [forwards, backwards, free_at] = places_[s];
    const std::size_t ahead = stages_.size() - s;  // most forwards kept for backward
    return forwards < count_ && forwards - backwards < ahead;
  }

  /// Runs the stage's next operation, if there is one and its input is computed.
  bool advance(std::size_t s) {
    Place& place = places_[s];
    if (place.backwards == count_) return false;
    double ready = place.free_at;
    if (forward_is_next(s)) {
      if (s > 0) {
        if (places_[s - 1].forwards <= place.forwards) return false;
        ready = std::max(ready, forward_end_[(s - 1) * count_ + place.forwards] + transfer_);
      }
      place.free_at = ready + stages_[s].forward.value;
      forward_end_[s * count_ + place.forwards++] = place.free_at;
      return true;
    }
    if (s + 1 < stages_.size()) {
      if (places_[s + 1].backwards <= place.backwards) return false;
      ready = std::max(ready, backward_end_[(s + 1) * count_ + place.backwards] + transfer_);
    }
    place.free_at = ready + stages_[s].backward.value;
    backward_end_[s * count_ + place.backwards++] = place.free_at;
    return true;
  }

  const std::vector<MicroBatchTimes>& stages_;
  double transfer_;
  std::size_t count_;
  std::vector<double> forward_end_, backward_end_;  // by stage, then micro-batch
  std::vector<Place> places_;
};

}  // namespace

Seconds pipeline_span(const std::vector<MicroBatchTimes>& stages, Seconds transfer,
                      std::int64_t micro_batches) {
  MOTLEY_CHECK(!stages.empty() && micro_batches > 0);
  return Seconds(Pipeline(stages, transfer, micro_batches).span());
}

}  // namespace motley::peers
