#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "motley/base/result.h"

namespace motley::plan {

/// A stage of a plan that somebody else made, in words.
struct GivenStage {
  std::vector<std::string> devices;  ///< of one host
  /// First and last of the model's layers, by name ("emb to h.3", or one) or by number from 0.
  std::variant<std::string, std::pair<std::size_t, std::size_t>> layers;
  bool recomputes = false;  ///< its forward pass in the backward pass
  bool operator==(const GivenStage&) const = default;
};

struct GivenReplica {
  std::int64_t samples = 0;  ///< 0: all, as the only replica
  std::int64_t micro_batches = 1;
  std::vector<GivenStage> stages;  ///< in order
  bool operator==(const GivenReplica&) const = default;
};

/// From JSON: a list as `stages` in the answer of `motley plan --json`, or an object that has one,
/// such as that answer. `name` is that of the text in messages. Usage errors with the place.
Result<std::vector<GivenReplica>> parse_given_stages(std::string_view text,
                                                     const std::string& name);

}  // namespace motley::plan
