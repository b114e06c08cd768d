#pragma once

#include <cstddef>
#include <functional>

namespace motley {

/// Calls `task` once with each of 0 to `count` - 1, on one thread per processor, and returns when
/// all are done. No task may throw or touch what another one writes.
void run_in_parallel(std::size_t count, const std::function<void(std::size_t)>& task);

}  // namespace motley
