#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/program/program.h"
#include "motley/synth/lower.h"

namespace motley::search {

/// Programs of the first of equal replicas (synth::lower_first), which depend on nothing but graph,
/// samples, ranks and how it is lowered: made once, also where the same model is planned for
/// several clusters, side by side. All graphs that it is asked about must be equal. For several
/// threads; who asks for what another one makes waits for it.
class EqualPrograms {
 public:
  using Programs = std::shared_ptr<const std::vector<program::DeviceProgram>>;

  /// One for each number of samples, which are lowered in parallel. Errors as of
  /// synth::lower_first.
  Result<Programs> find(const graph::Graph& graph, const std::vector<std::int64_t>& samples,
                        int ranks, const synth::LowerOptions& lowering);

 private:
  struct Entry {
    synth::LowerOptions lowering;
    std::once_flag once;
    Result<Programs> made;
  };
  Entry& entry(const std::vector<std::int64_t>& samples, int ranks,
               const synth::LowerOptions& lowering);

  std::mutex mutex_;
  std::map<std::pair<std::vector<std::int64_t>, int>, std::vector<std::unique_ptr<Entry>>> entries_;
};

}  // namespace motley::search
