#include "motley/run/torch/exchange/cancellable_store.h"

#include <c10/util/Exception.h>

#include <utility>

namespace motley::run {
CancellableStore::CancellableStore(c10::intrusive_ptr<c10d::Store> inner, Flag cancelled)
    : PolledStore(inner->getTimeout()),
      inner_(std::move(inner)),
      cancelled_(std::move(cancelled)) {}

c10::intrusive_ptr<c10d::Store> CancellableStore::clone() {
  return c10::make_intrusive<CancellableStore>(inner_->clone(), cancelled_);
}

void CancellableStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  inner_->set(key, value);
}

std::vector<std::uint8_t> CancellableStore::compareSet(const std::string& key,
                                                       const std::vector<std::uint8_t>& current,
                                                       const std::vector<std::uint8_t>& value) {
  return inner_->compareSet(key, current, value);
}

std::vector<std::uint8_t> CancellableStore::get(const std::string& key) {
  wait({key});
  return inner_->get(key);
}

std::int64_t CancellableStore::add(const std::string& key, std::int64_t value) {
  return inner_->add(key, value);
}

bool CancellableStore::deleteKey(const std::string& key) { return inner_->deleteKey(key); }

bool CancellableStore::check(const std::vector<std::string>& keys) {
  TORCH_CHECK(!*cancelled_, "waiting was cancelled");
  return inner_->check(keys);
}

std::int64_t CancellableStore::getNumKeys() { return inner_->getNumKeys(); }

void CancellableStore::setTimeout(const std::chrono::milliseconds& timeout) {
  Store::setTimeout(timeout);
  inner_->setTimeout(timeout);
}

}  // namespace motley::run
