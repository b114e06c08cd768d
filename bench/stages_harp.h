#pragma once

#include <string>
#include <vector>

#include "bench/stages_instances.h"
#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

/// Their chains of units as questions.
Result<std::vector<StageInstance>> harp_instances(const std::string& data);

/// HARP's measured plans (data/harp) beside Motley's, both simulated over nominal rates: no layer
/// times are published. Prints its lines and adds a row a model.
Result<void> run_harp(const std::string& data, Json& rows);

}  // namespace motley::bench
