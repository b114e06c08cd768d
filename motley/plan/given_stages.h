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

/// A pipeline stage of a plan made elsewhere.
struct GivenStage {
  std::vector<std::string> devices;  ///< of one host
  /// First and last of the model's layers: by name ("emb to h.3", or one name) or by number from 0.
  std::variant<std::string, std::pair<std::size_t, std::size_t>> layers;
  bool recomputes = false;  ///< recomputes its forward pass in the backward pass
  bool operator==(const GivenStage&) const = default;
};

struct GivenReplica {
  std::int64_t samples = 0;  ///< 0: all samples, for the only replica
  std::int64_t micro_batches = 1;
  std::vector<GivenStage> stages;  ///< in order
  bool operator==(const GivenReplica&) const = default;
};

/// Parses JSON: a list like `stages` in the answer of `motley plan --json`, or an object that
/// contains one. Messages call the text `name`. Usage errors give the place.
Result<std::vector<GivenReplica>> parse_given_stages(std::string_view text,
                                                     const std::string& name);

}  // namespace motley::plan
