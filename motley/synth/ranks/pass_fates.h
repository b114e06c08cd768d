#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/synth/ranks/pass_values.h"

namespace motley::synth {

/// What becomes of an operator of a step in passes.
enum class Fate : std::uint8_t {
  kDropped,  ///< nothing that is wanted depends on it
  kOnce,     ///< works on no samples
  kEach,     ///< a copy for each pass
  kMean,     ///< the same, of whose results each counts as its samples do
  kNllMean,  ///< a copy that sums, divided by the labels of all
  kNumbers,  ///< a copy that counts from the pass's first row
  kOwnRows,  ///< a copy that takes rows by their own numbers, less that of its first
};

struct PassFates {
  std::vector<Fate> fates;                   ///< by operator
  std::vector<std::vector<ValueId>> leaves;  ///< by output: what it is the sum of
  std::vector<char> is_prepared;             ///< by operator: done for all passes before all else
  std::vector<char> is_early_sum;            ///< by value: its sum is, too
  std::vector<char> is_summed;               ///< by value: added up over the passes of a replica
  double part = 1;                           ///< of Accumulation

  /// Has the operator a copy in a pass?
  bool is_there(std::size_t op, std::int64_t pass) const {
    return fates[op] != Fate::kDropped && (pass == 0 || fates[op] != Fate::kOnce);
  }
};

/// Returns where an arange by ones begins; none: it depends on the batch.
std::optional<std::int64_t> first_number(const graph::Op& op);

/// Finds them; usage error (synth.accumulation) if operators or outputs need all samples at once.
/// O(graph).
Result<PassFates> find_pass_fates(const PassValues& values);

}  // namespace motley::synth
