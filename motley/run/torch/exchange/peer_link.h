#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/torch/exchange/shared_memory_group.h"

namespace motley::run {

/// One end of a one-way link between two ranks. Messages pass one after another, each when both
/// ends have reached it, through shared memory or else a Gloo group of the two. Links are
/// independent of one another. One thread moves messages; any may call close.
class PeerLink {
 public:
  using Gloo = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
  /// Member 0 sends, member 1 receives. `timeout`: of each message, with Gloo.
  PeerLink(std::shared_ptr<SharedMemoryGroup> shared, int member);
  PeerLink(Gloo gloo, int member, Seconds timeout);

  struct Failure {
    enum class Kind { kLost, kLate, kClosed } kind;  ///< kClosed: here
    std::string cause;                               ///< Gloo's message; may be empty
  };
  /// Moves a contiguous CPU tensor. Returns the time when the later end reached it or, with Gloo,
  /// of completion (clock.h).
  tl::expected<std::int64_t, Failure> move(const at::Tensor& tensor);
  /// Ends this move and all later ones, at both ends. Idempotent.
  void close();

 private:
  tl::expected<std::int64_t, Failure> move_in_memory(const at::Tensor& bytes);
  tl::expected<std::int64_t, Failure> move_by_gloo(const at::Tensor& bytes);

  const std::shared_ptr<SharedMemoryGroup> shared_;
  const int member_;
  const Seconds timeout_;
  std::mutex mutex_;  // guards what follows
  Gloo gloo_;
  c10::intrusive_ptr<c10d::Work> under_way_;
  bool is_closed_ = false;
};

}  // namespace motley::run
