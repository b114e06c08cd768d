#pragma once

#include "motley/base/json.h"

namespace motley::bench {

enum class RanksKind { kStart, kSlow };

/// Tests the learned split of scripts' ranks under quotas of 0.8, 0.4 and 0.2 of a core, as
/// bench/adopt.py trains them: lines, jitter, longer first steps and delays as measured there, with
/// 200 drawn trainings each. Steps to within 5 % of the best split for good, from an even one
/// (kStart: 44 steps, the first unseen) or after the fastest rank slows to half at the 21st
/// (kSlow). Prints a table and adds a row for each kind of training: kind, case, median,
/// most_of_ten (90th percentile), worst, within_10 (share), changes, excess.
void add_ranks_rows(RanksKind kind, Json& rows);

}  // namespace motley::bench
