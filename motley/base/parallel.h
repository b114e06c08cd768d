#pragma once

#include <cstddef>
#include <functional>

namespace motley {

/// Calls `task` with 0 to `count` - 1, each once, on as many threads as there are processors, and
/// returns when all are done. No task may touch what another one writes, or throw.
void run_in_parallel(std::size_t count, const std::function<void(std::size_t)>& task);

}  // namespace motley
