#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "motley/base/descriptor.h"
#include "motley/run/job.h"
#include "motley/run/torch/exchange/polled_store.h"

namespace motley::run {

/// The client of a KeyServer (run/hosts/key_server.h) as a c10d store. Its waits end at their
/// timeouts; CancellableStore ends them earlier. Throws if the server is gone.
class ServedStore : public PolledStore {
 public:
  explicit ServedStore(StoreAddress address);
  c10::intrusive_ptr<Store> clone() override;
  using PolledStore::compareSet;
  using PolledStore::set;
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> compareSet(const std::string& key,
                                       const std::vector<std::uint8_t>& expected,
                                       const std::vector<std::uint8_t>& value) override;
  std::vector<std::uint8_t> get(const std::string& key) override;
  std::int64_t add(const std::string& key, std::int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  std::int64_t getNumKeys() override;

 private:
  std::string ask(char operation, const std::vector<std::string>& fields);
  std::string exchange(const std::string& request);
  const StoreAddress address_;
  std::mutex mutex_;  // guards the socket: a request and its answer
  Descriptor socket_;
};

}  // namespace motley::run
