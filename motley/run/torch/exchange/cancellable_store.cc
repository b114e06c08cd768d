#include "motley/run/torch/exchange/cancellable_store.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace motley::run {
namespace {

using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kBetweenLooks{2};  // between looks for a key

}  // namespace

CancellableStore::CancellableStore(c10::intrusive_ptr<c10d::Store> inner, Flag cancelled)
    : Store(inner->getTimeout()), inner_(std::move(inner)), cancelled_(std::move(cancelled)) {}

c10::intrusive_ptr<c10d::Store> CancellableStore::clone() {
  return c10::make_intrusive<CancellableStore>(inner_->clone(), cancelled_);
}

void CancellableStore::stop_if_cancelled() const {
  TORCH_CHECK(!*cancelled_, "waiting was cancelled");
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

bool CancellableStore::check(const std::vector<std::string>& keys) { return inner_->check(keys); }

std::int64_t CancellableStore::getNumKeys() { return inner_->getNumKeys(); }

void CancellableStore::wait(const std::vector<std::string>& keys) { wait(keys, timeout_); }

void CancellableStore::wait(const std::vector<std::string>& keys, const Milliseconds& timeout) {
  const auto limit = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    stop_if_cancelled();
    if (inner_->check(keys)) return;
    TORCH_CHECK(timeout == kNoTimeout || std::chrono::steady_clock::now() < limit,
                "Timeout waiting for key ", keys.empty() ? "" : keys.front());
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

void CancellableStore::setTimeout(const Milliseconds& timeout) {
  Store::setTimeout(timeout);
  inner_->setTimeout(timeout);
}

}  // namespace motley::run
