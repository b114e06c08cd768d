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

/// One way between two ranks, at one of its ends: messages go one after the other, each when both
/// ends have come to it. Through memory that they share, else by a Gloo group of the two: what is
/// under way in one link neither waits for nor is mixed up with what is in another. One thread
/// moves messages; any may call close.
class PeerLink {
 public:
  using Gloo = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
  /// In both the member 0 sends and the member 1 receives. `timeout`: of each message, by Gloo.
  PeerLink(std::shared_ptr<SharedMemoryGroup> shared, int member);
  PeerLink(Gloo gloo, int member, Seconds timeout);

  struct Failure {
    enum class Kind { kLost, kLate, kClosed } kind;  ///< kClosed: here
    std::string cause;                               ///< what Gloo says; may be empty
  };
  /// Gives the bytes of a contiguous CPU tensor to the other end, or fills it. Returns when the
  /// last end had come to it, or with Gloo when it was over (clock.h).
  tl::expected<std::int64_t, Failure> move(const at::Tensor& tensor);
  /// Ends a move that is under way, and all later ones, here and at the other end. Idempotent.
  void close();

 private:
  tl::expected<std::int64_t, Failure> move_in_memory(const at::Tensor& bytes);
  tl::expected<std::int64_t, Failure> move_by_gloo(const at::Tensor& bytes);

  const std::shared_ptr<SharedMemoryGroup> shared_;
  const int member_;
  const Seconds timeout_;
  std::mutex mutex_;  // of those below
  Gloo gloo_;
  c10::intrusive_ptr<c10d::Work> under_way_;
  bool is_closed_ = false;
};

}  // namespace motley::run
