#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace motley::run {

/// A store that waits for keys by polling c10d::Store::check until its timeout.
class PolledStore : public c10d::Store {
 public:
  using Store::compareSet;
  using Store::set;
  using Store::Store;
  void wait(const std::vector<std::string>& keys) override { wait(keys, timeout_); }
  /// Waits. Throws if the keys do not come in time (0: no limit), and what `check` throws.
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override;
};

}  // namespace motley::run
