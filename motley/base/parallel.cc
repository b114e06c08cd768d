#include "motley/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace motley {

void run_in_parallel(std::size_t count, const std::function<void(std::size_t)>& task) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) task(i);
  };
  const std::size_t wanted = std::min<std::size_t>(count, std::thread::hardware_concurrency());
  std::vector<std::jthread> helpers;
  try {
    while (helpers.size() + 1 < wanted) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads are available: the existing ones do all tasks.
  }
  work();
}

}  // namespace motley
