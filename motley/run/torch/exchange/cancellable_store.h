#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "motley/run/torch/exchange/polled_store.h"

namespace motley::run {

/// A store whose waits can be cancelled, also those of its clones, prefixes and groups being made:
/// c10d's end only at their timeout, too late for a rank that waits for a dead one.
class CancellableStore : public PolledStore {
 public:
  using Flag = std::shared_ptr<std::atomic<bool>>;
  CancellableStore(c10::intrusive_ptr<c10d::Store> inner, Flag cancelled);

  c10::intrusive_ptr<Store> clone() override;
  using PolledStore::compareSet;
  using PolledStore::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key,
                                       const std::vector<std::uint8_t>& current,
                                       const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;
  void setTimeout(const std::chrono::milliseconds& timeout) override;

 private:
  c10::intrusive_ptr<c10d::Store> inner_;
  Flag cancelled_;
};

}  // namespace motley::run
