#pragma once

#include <string>

#include "motley/base/json.h"
#include "motley/base/result.h"

namespace motley::bench {

// Each prints a table and adds a row an instance: keys "kind", "case", "policy" and what is
// measured.

/// "noise": relative deviation of a step's estimate over 20,000 steps, beside the formula's.
void add_noise_rows(Json& rows);

/// "batch": the best batch of random clusters against a grid of 4,000, its time; and cases of equal
/// devices with AdaptDL's parameters, which bench/adaptdl_peer.py hands to AdaptDL's own module.
void add_batch_rows(Json& rows);

/// "replay": four tasks of Pollux at device speeds 4 : 2.2 : 1, to their ends.
Result<void> add_replay_rows(const std::string& data, int seeds, Json& rows);

/// "set": JABAS's profile of ResNet-50 on 4 V100 and 4 P100: splits, and trainings with a batch
/// that grows.
Result<void> add_set_rows(const std::string& data, int seeds, Json& rows);

}  // namespace motley::bench
