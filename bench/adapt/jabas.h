#pragma once

#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// Simulates kind "jabas": JABAS's released profile of ResNet-50 on 4 V100 and 4 P100 with its time
/// model, at batches of 256 to 8,192, with splits learned from nothing: the step after 50 steps
/// (mean of the next 50) against the best free split's. A row per batch and policy: kind, case,
/// policy, step_s, best_step_s, steps_to_2pct.
Result<void> run_jabas(const std::string& data, Json& rows);

}  // namespace motley::bench
