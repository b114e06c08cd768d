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

/// A cache of programs of the first of equal replicas (synth::lower_first). These depend only on
/// graph, samples, ranks and lowering, so several clusters planned in parallel share them. All
/// graphs passed in must be equal. Thread-safe: a caller waits for a program that another thread is
/// lowering.
class EqualPrograms {
 public:
  using Programs = std::shared_ptr<const std::vector<program::DeviceProgram>>;

  /// Returns one program per number of samples, lowered in parallel. Errors of synth::lower_first.
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
