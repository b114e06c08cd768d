#include "motley/run/torch/gloo_communicator.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <optional>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "motley/base/check.h"
#include "motley/run/torch/arrival_clock.h"
#include "motley/run/torch/failure.h"
#include "motley/run/torch/store.h"

namespace motley::run {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

void sleep_until_ns(std::int64_t when) {
  const timespec time{when / 1'000'000'000, when % 1'000'000'000};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) {
  }
}

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(Rendezvous& rendezvous, const CommunicatorOptions& options)
      : options_(options), rank_(rendezvous.rank()), size_(rendezvous.size()) {}

  Result<void> connect(Rendezvous& rendezvous);
  Result<void> all_reduce(GroupId group, at::Tensor& tensor) override;
  Result<void> broadcast(at::Tensor& tensor) override;
  std::string transport() const override { return "gloo"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void close() override;

 private:
  Group make_group(Rendezvous& rendezvous, const std::string& name, const std::vector<int>& members,
                   const std::string& address) const;
  Group group_at(std::size_t index) const;
  template <typename Operation>
  Result<void> run(std::size_t index, const char* what, const at::Tensor& tensor,
                   const Operation& operation);
  std::string describe_members(std::size_t index) const;

  CommunicatorOptions options_;
  int rank_, size_;
  std::optional<ArrivalClock> clock_;  // when a link is emulated
  mutable std::mutex mutex_;           // of groups_ and closed_
  std::vector<Group> groups_;          // by GroupId; the last is all ranks
  bool closed_ = false;
};

Group GlooCommunicator::make_group(Rendezvous& rendezvous, const std::string& name,
                                   const std::vector<int>& members,
                                   const std::string& address) const {
  const auto place = std::find(members.begin(), members.end(), rank_);
  auto options = c10d::ProcessGroupGloo::Options::create(
      std::chrono::milliseconds(static_cast<std::int64_t>(options_.timeout.value * 1000)));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
  options->threads = 2;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("gloo/" + name, rendezvous.state().store),
      static_cast<int>(place - members.begin()), static_cast<int>(members.size()), options);
}

Result<void> GlooCommunicator::connect(Rendezvous& rendezvous) {
  MOTLEY_ASSIGN(const std::string address, rendezvous.own_address());
  const bool emulates = std::any_of(options_.groups.begin(), options_.groups.end(),
                                    [](const GroupOptions& each) { return !each.link.is_real(); });
  if (emulates) {
    MOTLEY_ASSIGN(clock_, ArrivalClock::open(options_.clock_file, options_.groups.size(),
                                             static_cast<std::size_t>(size_)));
  }
  std::vector<int> everyone(static_cast<std::size_t>(size_));
  std::iota(everyone.begin(), everyone.end(), 0);
  try {
    const Group world = make_group(rendezvous, "world", everyone, address);
    for (std::size_t i = 0; i < options_.groups.size(); ++i) {
      const std::vector<int>& members = options_.groups[i].members;
      const bool mine = std::find(members.begin(), members.end(), rank_) != members.end();
      if (members == everyone) {
        groups_.push_back(world);
      } else if (mine && members.size() > 1) {
        groups_.push_back(make_group(rendezvous, std::to_string(i), members, address));
      } else {
        groups_.emplace_back();
      }
    }
    groups_.push_back(world);
    return {};
  } catch (const std::exception& fault) {
    return runtime_error("run.peer-lost",
                         fmt::format("rank {}: the {} ranks did not connect (own address {}): {}",
                                     rank_, size_, address, failure_text(fault)));
  }
}

Group GlooCommunicator::group_at(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  return closed_ ? Group() : groups_[index];
}

std::string GlooCommunicator::describe_members(std::size_t index) const {
  if (index >= options_.groups.size()) return "all ranks";
  std::string text = "ranks";
  for (const int member : options_.groups[index].members) text += fmt::format(" {}", member);
  return text;
}

/// Runs one operation. Its Work is gone when it returns; on an error the groups go too, at once:
/// whoever still holds one keeps the sockets open and the peers waiting.
template <typename Operation>
Result<void> GlooCommunicator::run(std::size_t index, const char* what, const at::Tensor& tensor,
                                   const Operation& operation) {
  std::string cause;
  {
    const Group group = group_at(index);
    if (!group)
      return runtime_error("run.closed",
                           fmt::format("rank {}: {} after an earlier error", rank_, what));
    try {
      operation(group);
      return {};
    } catch (const std::exception& fault) {
      cause = failure_text(fault);
    }
  }
  close();
  const bool late = cause.find("imed out") != std::string::npos;
  return runtime_error(
      late ? "run.timeout" : "run.peer-lost",
      fmt::format("rank {}: {} of {} bytes among {} {}: {}", rank_, what, tensor.nbytes(),
                  describe_members(index),
                  late ? fmt::format("not done after {:g} s", options_.timeout.value)
                       : "failed, a peer is gone",
                  cause));
}

Result<void> GlooCommunicator::all_reduce(GroupId group, at::Tensor& tensor) {
  const std::size_t index = group.index();
  MOTLEY_CHECK(index < options_.groups.size() && tensor.is_contiguous());
  const GroupOptions& options = options_.groups[index];
  if (tensor.numel() == 0 || options.members.size() < 2) return {};
  return run(index, "all_reduce", tensor, [&](const Group& joined) {
    std::vector<at::Tensor> tensors{tensor};
    if (options.link.is_real()) {
      joined->allreduce(tensors)->wait();
      return;
    }
    clock_->arrive(index, rank_);
    joined->allreduce(tensors)->wait();
    const auto ranks = static_cast<int>(options.members.size());
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    const std::int64_t begin = clock_->last_arrival(index, options.members);
    sleep_until_ns(std::min(begin, monotonic_ns()) + options.link.all_reduce_ns(ranks, bytes));
  });
}

Result<void> GlooCommunicator::broadcast(at::Tensor& tensor) {
  MOTLEY_CHECK(tensor.is_contiguous());
  if (tensor.numel() == 0 || size_ < 2) return {};
  return run(options_.groups.size(), "broadcast", tensor, [&](const Group& world) {
    // As bytes: Gloo does not know every element type.
    std::vector<at::Tensor> bytes{tensor.view({-1}).view(at::kByte)};
    world->broadcast(bytes)->wait();
  });
}

void GlooCommunicator::close() {
  std::vector<Group> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(groups_);
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_gloo_communicator(Rendezvous& rendezvous,
                                                             const CommunicatorOptions& options) {
  auto communicator = std::make_unique<GlooCommunicator>(rendezvous, options);
  MOTLEY_RETURN_IF_ERROR(communicator->connect(rendezvous));
  return communicator;
}

}  // namespace motley::run
