#include "motley/run/torch/exchange/polled_store.h"

#include <c10/util/Exception.h>

#include <thread>

namespace motley::run {

void PolledStore::wait(const std::vector<std::string>& keys,
                       const std::chrono::milliseconds& timeout) {
  constexpr std::chrono::milliseconds kBetweenLooks{2};
  const auto limit = std::chrono::steady_clock::now() + timeout;
  while (!check(keys)) {
    TORCH_CHECK(timeout == kNoTimeout || std::chrono::steady_clock::now() < limit,
                "Timeout waiting for key ", keys.empty() ? "" : keys.front());
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace motley::run
