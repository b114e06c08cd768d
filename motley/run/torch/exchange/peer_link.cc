#include "motley/run/torch/exchange/peer_link.h"

#include <ATen/ops/empty.h>

#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/exchange/failure.h"

namespace motley::run {
namespace {

constexpr int kSender = 0, kReceiver = 1;
constexpr std::uint32_t kTag = 0;  // messages of one link are in order

}  // namespace

PeerLink::PeerLink(std::shared_ptr<SharedMemoryGroup> shared, int member)
    : shared_(std::move(shared)), member_(member) {}

PeerLink::PeerLink(Gloo gloo, int member, Seconds timeout)
    : member_(member), timeout_(timeout), gloo_(std::move(gloo)) {}

tl::expected<std::int64_t, PeerLink::Failure> PeerLink::move(const at::Tensor& tensor) {
  // As bytes: Gloo does not support every element type.
  const at::Tensor bytes = tensor.view({-1}).view(at::kByte);
  return shared_ ? move_in_memory(bytes) : move_by_gloo(bytes);
}

tl::expected<std::int64_t, PeerLink::Failure> PeerLink::move_in_memory(const at::Tensor& bytes) {
  at::Tensor nothing = at::empty({0}, bytes.options());
  at::Tensor whole = bytes;
  const Counts none = {0, 0};
  const auto done = member_ == kSender
                        ? shared_->all_to_all({{0, bytes.numel()}, none}, whole, nothing)
                        : shared_->all_to_all({none, {bytes.numel(), 0}}, nothing, whole);
  if (done) return shared_->last_arrival_ns();
  const SharedMemoryGroup::Failure& failure = done.error();
  if (failure.member < 0) return tl::make_unexpected(Failure{Failure::Kind::kClosed, ""});
  const bool is_late = failure.kind == SharedMemoryGroup::Failure::Kind::kLate;
  return tl::make_unexpected(Failure{is_late ? Failure::Kind::kLate : Failure::Kind::kLost, ""});
}

tl::expected<std::int64_t, PeerLink::Failure> PeerLink::move_by_gloo(const at::Tensor& bytes) {
  Failure failure{Failure::Kind::kClosed, ""};
  try {
    c10::intrusive_ptr<c10d::Work> work;
    {
      const std::lock_guard lock(mutex_);
      if (is_closed_) return tl::make_unexpected(failure);
      std::vector<at::Tensor> tensors{bytes};
      work = member_ == kSender ? gloo_->send(tensors, kReceiver, kTag)
                                : gloo_->recv(tensors, kSender, kTag);
      under_way_ = work;
    }
    const std::chrono::milliseconds timeout(static_cast<std::int64_t>(timeout_.value * 1000));
    const bool is_done = work->wait(timeout);
    const std::int64_t now = monotonic_ns();
    const std::lock_guard lock(mutex_);
    under_way_.reset();
    if (is_done && !is_closed_) return now;
  } catch (const std::exception& fault) {
    failure.cause = failure_text(fault);
    const bool is_late = failure.cause.find("imed out") != std::string::npos;
    failure.kind = is_late ? Failure::Kind::kLate : Failure::Kind::kLost;
  }
  const std::lock_guard lock(mutex_);
  under_way_.reset();
  if (is_closed_) failure.kind = Failure::Kind::kClosed;
  return tl::make_unexpected(std::move(failure));
}

void PeerLink::close() {
  if (shared_) return shared_->close();
  // Destroys the group, and so its socket, outside the lock: the other end learns of it at once.
  Gloo dropped;
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_closed_, true)) return;
  if (under_way_) under_way_->abort();
  dropped.swap(gloo_);
}

}  // namespace motley::run
