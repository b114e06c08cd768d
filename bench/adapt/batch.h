#pragma once

#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

// Each prints a table and adds a row per instance: "kind", "case", "policy" and the measurements.

/// Adds "noise": relative deviation of a step's estimate over 20,000 steps, beside the formula's.
void add_noise_rows(Json& rows);

/// Adds "batch": the best batch of random clusters against a grid of 4,000, and its time; cases of
/// equal devices with AdaptDL's parameters, which bench/adaptdl_peer.py passes to its own module.
void add_batch_rows(Json& rows);

/// Adds "replay": four tasks of Pollux at device speeds 4 : 2.2 : 1, to their end.
Result<void> add_replay_rows(const std::string& data, int seeds, Json& rows);

/// Adds "set": JABAS's ResNet-50 on 4 V100 and 4 P100: splits, and trainings with growing batches.
Result<void> add_set_rows(const std::string& data, int seeds, Json& rows);

}  // namespace motley::bench
