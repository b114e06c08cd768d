#pragma once

#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "motley/run/torch/exchange/cancellable_store.h"
#include "motley/run/torch/exchange/rendezvous.h"

namespace motley::run {

/// For code that builds process groups: includes c10d's headers, which are slow to compile.
struct Rendezvous::State {
  std::mutex moving;                      ///< guards the store and the options' keys
  c10::intrusive_ptr<c10d::Store> store;  ///< already prefixed for this job and attempt
  CancellableStore::Flag cancelled = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace motley::run
