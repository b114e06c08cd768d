#include "motley/run/torch/cuda/nccl_communicator.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <utility>

#include "motley/base/check.h"
#include "motley/run/torch/exchange/failure.h"
#include "motley/run/torch/exchange/split_exchange.h"
#include "motley/run/torch/exchange/store.h"

namespace motley::run {
namespace {

using Group = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Rendezvous& rendezvous, CommunicatorOptions options, int device)
      : options_(std::move(options)),
        rank_(rendezvous.rank()),
        size_(rendezvous.size()),
        device_(static_cast<c10::DeviceIndex>(device)) {}

  Result<void> connect(Rendezvous& rendezvous);
  Result<void> all_reduce(const ExchangeCall& call, at::Tensor& tensor) override;
  Result<void> all_gather(const ExchangeCall& call, const Counts& counts, const at::Tensor& part,
                          at::Tensor& all) override;
  Result<void> reduce_scatter(const ExchangeCall& call, const Counts& counts, const at::Tensor& all,
                              at::Tensor& part) override;
  Result<void> all_to_all(const ExchangeCall& call, const Splits& splits, const at::Tensor& in,
                          at::Tensor& out) override;
  Result<std::int64_t> send(int peer, const at::Tensor& tensor) override;
  Result<std::int64_t> receive(int peer, at::Tensor& tensor) override;
  Result<void> broadcast(at::Tensor& tensor) override;
  std::string transport() const override { return "nccl"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void close() override;

 private:
  Group make_group(Rendezvous& rendezvous, const std::string& name,
                   const std::vector<int>& members) const;
  template <typename Find, typename Operation>
  Result<void> run_in(const Find& find, const std::string& what, const Operation& operation);
  template <typename Operation>
  Result<void> run(std::size_t index, const char* what, const Operation& operation) {
    return run_in([&] { return groups_[index]; }, what, operation);
  }
  template <typename Operation>
  Result<std::int64_t> run_pair(int source, int target, const std::string& what,
                                const Operation& operation);
  void finish(const c10::intrusive_ptr<c10d::Work>& work) const;
  bool is_closed();
  template <typename Exchange>
  Result<void> run_parts(const ExchangeCall& call, const char* what, const Exchange& exchange);

  CommunicatorOptions options_;
  int rank_, size_;
  c10::DeviceIndex device_;
  std::mutex mutex_;                            // guards groups_, pairs_ and closed_
  std::vector<Group> groups_;                   // by GroupId; the last is all ranks
  std::map<std::pair<int, int>, Group> pairs_;  // by source and target: each has its own stream
  bool closed_ = false;
};

Group NcclCommunicator::make_group(Rendezvous& rendezvous, const std::string& name,
                                   const std::vector<int>& members) const {
  const auto place = std::find(members.begin(), members.end(), rank_);
  auto options = c10d::ProcessGroupNCCL::Options::create();
  // Well above ours: its watchdog kills the process, while finish() reports what happened.
  constexpr std::chrono::milliseconds kLater(60'000);
  options->timeout =
      2 * std::chrono::milliseconds(static_cast<std::int64_t>(options_.timeout.value * 1000)) +
      kLater;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(
      c10::make_intrusive<c10d::PrefixStore>("nccl/" + name, rendezvous.state().store),
      static_cast<int>(place - members.begin()), static_cast<int>(members.size()), options);
}

Result<void> NcclCommunicator::connect(Rendezvous& rendezvous) {
  std::vector<int> everyone(static_cast<std::size_t>(size_));
  std::iota(everyone.begin(), everyone.end(), 0);
  try {
    const c10::cuda::CUDAGuard guard(device_);
    const Group world = make_group(rendezvous, "world", everyone);
    for (std::size_t i = 0; i < options_.groups.size(); ++i) {
      const std::vector<int>& members = options_.groups[i].members;
      const bool mine = std::find(members.begin(), members.end(), rank_) != members.end();
      if (members == everyone) {
        groups_.push_back(world);
      } else if (mine && members.size() > 1) {
        groups_.push_back(make_group(rendezvous, std::to_string(i), members));
      } else {
        groups_.emplace_back();
      }
    }
    groups_.push_back(world);
    // All ranks create their pairs in the same order. They connect now, because the first message
    // would otherwise wait for the other end without a timeout.
    for (const auto& [source, target, link] : options_.pairs) {
      if (source != rank_ && target != rank_) continue;
      const Group pair =
          make_group(rendezvous, fmt::format("{}-{}", source, target), {source, target});
      pair->eagerConnectSingleDevice(at::Device(at::kCUDA, device_));
      pairs_.emplace(std::pair(source, target), pair);
    }
    return {};
  } catch (const std::exception& fault) {
    return runtime_error("run.peer-lost", fmt::format("rank {}: NCCL did not connect {} ranks: {}",
                                                      rank_, size_, failure_text(fault)));
  }
}

/// Waits for the device by polling: a dead peer would leave a blocking CUDA call waiting forever.
void NcclCommunicator::finish(const c10::intrusive_ptr<c10d::Work>& work) const {
  const auto begin = std::chrono::steady_clock::now();
  constexpr auto kSpin = std::chrono::microseconds(200);
  while (!work->isCompleted()) {
    const auto waited = std::chrono::steady_clock::now() - begin;
    if (waited > std::chrono::duration<double>(options_.timeout.value))
      throw std::runtime_error(fmt::format("timed out after {:g} s", options_.timeout.value));
    if (waited > kSpin) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  if (const std::exception_ptr fault = work->exception()) std::rethrow_exception(fault);
  work->wait();  // orders the caller's stream after NCCL's
}

/// `find` returns the group; called with the mutex held and the communicator open.
template <typename Find, typename Operation>
Result<void> NcclCommunicator::run_in(const Find& find, const std::string& what,
                                      const Operation& operation) {
  std::string cause;
  {
    Group group;
    {
      const std::lock_guard lock(mutex_);
      if (!closed_) group = find();
    }
    if (!group)
      return runtime_error("run.closed",
                           fmt::format("rank {}: {} after an earlier error", rank_, what));
    try {
      const c10::cuda::CUDAGuard guard(device_);
      finish(operation(group));
      return {};
    } catch (const std::exception& fault) {
      cause = failure_text(fault);
    }
  }
  if (is_closed())  // closed by another thread, which reports the error
    return runtime_error("run.closed",
                         fmt::format("rank {}: {} was ended by an earlier error", rank_, what));
  close();
  const bool late = cause.find("imed out") != std::string::npos;
  return runtime_error(late ? "run.timeout" : "run.peer-lost",
                       fmt::format("rank {}: {}: {}", rank_, what, cause));
}

bool NcclCommunicator::is_closed() {
  const std::lock_guard lock(mutex_);
  return closed_;
}

/// Runs in the group of the pair, in which the source has rank 0. The arrival time is unknown.
template <typename Operation>
Result<std::int64_t> NcclCommunicator::run_pair(int source, int target, const std::string& what,
                                                const Operation& operation) {
  const auto find = [&] {
    const auto found = pairs_.find({source, target});
    MOTLEY_CHECK(found != pairs_.end());
    return found->second;
  };
  MOTLEY_RETURN_IF_ERROR(run_in(find, what, operation));
  return 0;
}

Result<std::int64_t> NcclCommunicator::send(int peer, const at::Tensor& tensor) {
  MOTLEY_CHECK(tensor.is_contiguous());
  if (tensor.numel() == 0) return 0;
  return run_pair(rank_, peer, fmt::format("send to rank {}", peer), [&](const Group& pair) {
    std::vector<at::Tensor> bytes{tensor.view({-1}).view(at::kByte)};
    return pair->send(bytes, 1, 0);
  });
}

Result<std::int64_t> NcclCommunicator::receive(int peer, at::Tensor& tensor) {
  MOTLEY_CHECK(tensor.is_contiguous());
  if (tensor.numel() == 0) return 0;
  return run_pair(peer, rank_, fmt::format("receive from rank {}", peer), [&](const Group& pair) {
    std::vector<at::Tensor> bytes{tensor.view({-1}).view(at::kByte)};
    return pair->recv(bytes, 0, 0);
  });
}

Result<void> NcclCommunicator::all_reduce(const ExchangeCall& call, at::Tensor& tensor) {
  const std::size_t index = call.group.index();
  MOTLEY_CHECK(index < options_.groups.size() && tensor.is_contiguous());
  if (tensor.numel() == 0 || options_.groups[index].members.size() < 2) return {};
  return run(index, "all_reduce", [&](const Group& joined) {
    std::vector<at::Tensor> tensors{tensor};
    return joined->allreduce(tensors);
  });
}

using Tensors = std::vector<at::Tensor>;

/// The group's operations, in the forms that split_exchange.h and the methods need. Each records
/// its work and makes later work on the caller's stream wait for it.
class Operations {
 public:
  explicit Operations(Group group) : group_(std::move(group)) {}
  /// With splits: one group of sends and receives.
  auto by_splits() {
    return [this](at::Tensor& to, at::Tensor& from, Counts receives, Counts sends) {
      note(group_->alltoall_base(to, from, receives, sends));
    };
  }
  auto gather() {
    return [this](at::Tensor& to, at::Tensor& from) { note(group_->_allgather_base(to, from)); };
  }
  auto reduce_scatter() {
    return
        [this](at::Tensor& to, at::Tensor& from) { note(group_->_reduce_scatter_base(to, from)); };
  }
  /// With uneven lists: one broadcast, or reduction, per member, all in one NCCL group.
  void gather_lists(Tensors to, const at::Tensor& from) {
    std::vector<Tensors> outputs{std::move(to)};
    Tensors inputs{from};
    note(group_->allgather(outputs, inputs));
  }
  void reduce_scatter_lists(const at::Tensor& to, Tensors from) {
    Tensors outputs{to};
    std::vector<Tensors> inputs{std::move(from)};
    note(group_->reduce_scatter(outputs, inputs));
  }
  void all_to_all_lists(Tensors to, Tensors from) { note(group_->alltoall(to, from)); }
  const c10::intrusive_ptr<c10d::Work>& work() const { return work_; }

 private:
  void note(c10::intrusive_ptr<c10d::Work> work) {
    work_ = std::move(work);
    work_->wait();
  }
  Group group_;
  c10::intrusive_ptr<c10d::Work> work_;
};

template <typename Exchange>
Result<void> NcclCommunicator::run_parts(const ExchangeCall& call, const char* what,
                                         const Exchange& exchange) {
  return run(call.group.index(), what, [&](const Group& joined) {
    Operations operations(joined);
    exchange(operations);
    return operations.work();
  });
}

Result<void> NcclCommunicator::all_gather(const ExchangeCall& call, const Counts& counts,
                                          const at::Tensor& part, at::Tensor& all) {
  if (all.numel() == 0) return {};
  if (counts.size() < 2) {  // without a communicator
    all.copy_(part);
    return {};
  }
  return run_parts(call, "all_gather", [&](Operations& nccl) {
    if (call.method == ExchangeMethod::kPadded)
      return gather_padded(nccl.gather(), counts, part, all);
    if (call.method == ExchangeMethod::kGrouped)
      return nccl.gather_lists(all.split_with_sizes(counts), part);
    gather_by_splits(nccl.by_splits(), counts, part, all);
  });
}

Result<void> NcclCommunicator::reduce_scatter(const ExchangeCall& call, const Counts& counts,
                                              const at::Tensor& all, at::Tensor& part) {
  if (all.numel() == 0) return {};
  if (counts.size() < 2) {
    part.copy_(all);
    return {};
  }
  return run_parts(call, "reduce_scatter", [&](Operations& nccl) {
    if (call.method == ExchangeMethod::kPadded)
      return reduce_scatter_padded(nccl.reduce_scatter(), counts, all, part);
    if (call.method == ExchangeMethod::kGrouped)
      return nccl.reduce_scatter_lists(part, all.split_with_sizes(counts));
    reduce_scatter_by_splits(nccl.by_splits(), counts, all, part);
  });
}

Result<void> NcclCommunicator::all_to_all(const ExchangeCall& call, const Splits& splits,
                                          const at::Tensor& in, at::Tensor& out) {
  if (splits.sends.size() < 2) {
    out.copy_(in);
    return {};
  }
  return run_parts(call, "all_to_all", [&](Operations& nccl) {
    if (call.method == ExchangeMethod::kPadded)
      return exchange_padded(
          [&](at::Tensor& to, at::Tensor& from) { nccl.by_splits()(to, from, {}, {}); }, splits, in,
          out);
    if (call.method == ExchangeMethod::kGrouped)
      return nccl.all_to_all_lists(out.split_with_sizes(splits.receives),
                                   in.split_with_sizes(splits.sends));
    exchange_by_splits(nccl.by_splits(), splits, in, out);
  });
}

Result<void> NcclCommunicator::broadcast(at::Tensor& tensor) {
  MOTLEY_CHECK(tensor.is_contiguous());
  if (tensor.numel() == 0 || size_ < 2) return {};
  return run(options_.groups.size(), "broadcast", [&](const Group& world) {
    std::vector<at::Tensor> bytes{tensor.view({-1}).view(at::kByte)};
    return world->broadcast(bytes);
  });
}

void NcclCommunicator::close() {
  std::vector<Group> dropped;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(groups_);
    for (auto& [ranks, pair] : std::exchange(pairs_, {})) dropped.push_back(pair);
  }
  for (const Group& group : dropped) {
    if (!group) continue;
    try {
      group->abort();
    } catch (const std::exception&) {
      // Nothing more to do: the peers notice by their timeouts.
    }
  }
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_nccl_process_groups(Rendezvous& rendezvous,
                                                               const CommunicatorOptions& options,
                                                               int device) {
  auto communicator = std::make_unique<NcclCommunicator>(rendezvous, options, device);
  MOTLEY_RETURN_IF_ERROR(communicator->connect(rendezvous));
  return communicator;
}

}  // namespace motley::run
