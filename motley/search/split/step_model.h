#pragma once

#include <cstdint>
#include <vector>

#include "motley/cost/step/closed_form.h"
#include "motley/search/split/split_evaluator.h"

namespace motley::search {

/// The devices and their samples of a global batch. `samples` are positive.
struct BatchSplit {
  std::vector<DeviceId> devices;
  std::vector<std::int64_t> samples;
  bool operator==(const BatchSplit&) const = default;
};

using cost::exchange_tails;
using cost::step_seconds;
using cost::update_tails;

/// Returns the step of a whole split: blocking exchanges plus max_i f_i. Exact if nothing blocks
/// and communication does not slow compute, otherwise a lower bound.
double model_step(const SplitEvaluator& evaluator, const BatchSplit& split);

}  // namespace motley::search
