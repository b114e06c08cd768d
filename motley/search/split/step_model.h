#pragma once

#include <cstdint>
#include <vector>

#include "motley/cost/step/closed_form.h"
#include "motley/search/split/split_evaluator.h"

namespace motley::search {

/// Who computes how much of a global batch. `samples` are positive.
struct BatchSplit {
  std::vector<DeviceId> devices;
  std::vector<std::int64_t> samples;
  bool operator==(const BatchSplit&) const = default;
};

using cost::exchange_tails;
using cost::step_seconds;
using cost::update_tails;

/// Step of a whole split: blocking exchanges plus max_i f_i. Exact when nothing blocks and
/// communication does not slow compute, a lower bound otherwise.
double model_step(const SplitEvaluator& evaluator, const BatchSplit& split);

}  // namespace motley::search
