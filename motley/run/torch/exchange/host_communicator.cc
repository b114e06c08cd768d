#include "motley/run/torch/exchange/host_communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "motley/base/check.h"
#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/exchange/failure.h"
#include "motley/run/torch/exchange/gloo_exchange.h"
#include "motley/run/torch/exchange/peer_link.h"
#include "motley/run/torch/exchange/shared_memory_group.h"
#include "motley/run/torch/exchange/split_exchange.h"
#include "motley/run/torch/exchange/store.h"

namespace motley::run {
namespace {

using GlooGroup = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

/// A group's connection: one of the two, or none if this rank is not a member.
struct Group {
  GlooGroup gloo;
  std::shared_ptr<SharedMemoryGroup> shared;

  bool is_none() const { return !gloo && !shared; }
};

class HostCommunicator final : public Communicator {
 public:
  HostCommunicator(Rendezvous& rendezvous, const CommunicatorOptions& options)
      : options_(options), rank_(rendezvous.rank()), size_(rendezvous.size()) {}

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
  std::string transport() const override { return options_.shared_memory ? "gloo" : "gloo only"; }
  std::int64_t arrived_ns() const override { return arrived_ns_; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void close() override;

 private:
  Result<Group> make_group(Rendezvous& rendezvous, std::size_t index);
  Result<std::shared_ptr<SharedMemoryGroup>> share_memory(Rendezvous& rendezvous,
                                                          const std::string& name,
                                                          const std::vector<int>& members) const;
  GlooGroup make_gloo(Rendezvous& rendezvous, const std::string& name,
                      const std::vector<int>& members) const;
  Result<void> connect_pair(Rendezvous& rendezvous, const PairOptions& pair);
  /// A message in one direction, with its names for errors.
  struct Message {
    int source, target;
    const char *name, *preposition;
    std::size_t bytes;
  };
  template <typename Move>
  Result<std::int64_t> run(const Message& message, const Move& move);
  Group group_at(std::size_t index) const;
  bool is_closed() const;
  template <typename Operation>
  Result<void> run(std::size_t index, const char* what, const at::Tensor& tensor,
                   const Operation& operation);
  /// An operation from one tensor to another, in both implementations.
  struct Exchange {
    const char* name;
    GroupId group;
    double link_bytes;  ///< moved each way by the slowest member
    std::function<tl::expected<void, SharedMemoryGroup::Failure>(
        SharedMemoryGroup&, const at::Tensor& in, at::Tensor& out)>
        in_shared_memory;
    std::function<void(c10d::Backend&, const at::Tensor& in, at::Tensor& out)> by_gloo;
  };
  Result<void> run(const Exchange& exchange, const at::Tensor& in, at::Tensor& out);
  /// Sleeps until all members' data has passed the emulated link, if there is one.
  void pass_link(const Group& joined, std::int64_t link_ns);
  std::size_t place_in(GroupId group) const;
  std::string describe_members(std::size_t index) const;
  std::string describe(SharedMemoryGroup::Failure failure, std::size_t index) const;

  CommunicatorOptions options_;
  int rank_, size_;
  std::int64_t arrived_ns_ = 0;
  std::string address_;
  mutable std::mutex mutex_;   // guards groups_, pairs_ and closed_
  std::vector<Group> groups_;  // by GroupId; the last is all ranks, by Gloo
  struct Pair {
    std::shared_ptr<PeerLink> link;
    EmulatedLink emulated;
  };
  std::map<std::pair<int, int>, Pair> pairs_;  // of this rank, by source and target
  bool closed_ = false;
};

Result<bool> all_say_yes(Rendezvous& rendezvous, const std::string& key,
                         const std::vector<int>& members, bool own) {
  const auto key_of = [&](int rank) { return fmt::format("{}/{}", key, rank); };
  MOTLEY_RETURN_IF_ERROR(rendezvous.set(key_of(rendezvous.rank()), own ? "yes" : "no"));
  bool all = true;
  for (const int member : members) {
    MOTLEY_ASSIGN(const std::string said, rendezvous.get(key_of(member)));
    all = all && said == "yes";
  }
  return all;
}

/// Returns a tensor of that shape for the host: itself, or pinned memory, which GPUs copy fastest.
at::Tensor host_like(const at::Tensor& tensor) {
  return tensor.is_cpu()
             ? tensor
             : at::empty(tensor.sizes(), tensor.options().device(at::kCPU).pinned_memory(true));
}

at::Tensor on_host(const at::Tensor& tensor) {
  at::Tensor host = host_like(tensor);
  if (!tensor.is_cpu()) host.copy_(tensor);  // waits for the device
  return host;
}

/// Thrown by operations in place of c10d's exceptions.
struct OperationFailed {
  bool late;
  std::string cause;
};

GlooGroup HostCommunicator::make_gloo(Rendezvous& rendezvous, const std::string& name,
                                      const std::vector<int>& members) const {
  const auto place = std::find(members.begin(), members.end(), rank_);
  auto options = c10d::ProcessGroupGloo::Options::create(
      std::chrono::milliseconds(static_cast<std::int64_t>(options_.timeout.value * 1000)));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address_));
  // PyTorch's default; exchanges are sequential, so more would idle.
  options->threads = 2;
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("gloo/" + name, rendezvous.state().store),
      static_cast<int>(place - members.begin()), static_cast<int>(members.size()), options);
}

/// Returns null on all members if any is on another machine. The first member chooses the file's
/// name and removes it before anybody uses the memory.
Result<std::shared_ptr<SharedMemoryGroup>> HostCommunicator::share_memory(
    Rendezvous& rendezvous, const std::string& name, const std::vector<int>& members) const {
  const auto place = std::find(members.begin(), members.end(), rank_) - members.begin();
  const std::string key = "shared-memory/" + name;
  SharedMemoryGroup::Options shared;
  shared.member = static_cast<int>(place);
  shared.members = static_cast<int>(members.size());
  shared.timeout = options_.timeout;
  std::shared_ptr<SharedMemoryGroup> group;
  if (place == 0) {
    std::random_device random;
    // Random: jobs of several users and attempts share the folder.
    shared.path = fmt::format("/dev/shm/motley-{:08x}{:08x}{:08x}", random(), random(), random());
    if (auto made = SharedMemoryGroup::open(shared)) group = std::move(*made);
    MOTLEY_RETURN_IF_ERROR(rendezvous.set(key, group ? shared.path : ""));
  } else {
    MOTLEY_ASSIGN(shared.path, rendezvous.get(key));
    if (!shared.path.empty() && ::access(shared.path.c_str(), R_OK | W_OK) == 0)
      if (auto made = SharedMemoryGroup::open(shared)) group = std::move(*made);
  }
  // All or none: a group that meets half in memory and half over Gloo would hang.
  const auto common = all_say_yes(rendezvous, key, members, group != nullptr);
  if (place == 0) ::unlink(shared.path.c_str());
  MOTLEY_RETURN_IF_ERROR(common);
  if (!*common) group.reset();
  return group;
}

Result<Group> HostCommunicator::make_group(Rendezvous& rendezvous, std::size_t index) {
  const std::vector<int>& members = options_.groups[index].members;
  const bool mine = std::find(members.begin(), members.end(), rank_) != members.end();
  Group group;
  if (!mine || members.size() < 2) return group;
  if (options_.shared_memory) {
    MOTLEY_ASSIGN(group.shared, share_memory(rendezvous, std::to_string(index), members));
  }
  if (group.shared) return group;
  group.gloo = make_gloo(rendezvous, std::to_string(index), members);
  return group;
}

/// All ranks create their pairs in the same order, so that no two wait for each other.
Result<void> HostCommunicator::connect_pair(Rendezvous& rendezvous, const PairOptions& pair) {
  if (pair.source != rank_ && pair.target != rank_) return {};
  const std::vector<int> members = {pair.source, pair.target};
  const std::string name = fmt::format("{}-{}", pair.source, pair.target);
  const int member = pair.source == rank_ ? 0 : 1;
  std::shared_ptr<SharedMemoryGroup> shared;
  if (options_.shared_memory) {
    MOTLEY_ASSIGN(shared, share_memory(rendezvous, name, members));
  }
  auto link = shared ? std::make_shared<PeerLink>(std::move(shared), member)
                     : std::make_shared<PeerLink>(make_gloo(rendezvous, name, members), member,
                                                  options_.timeout);
  pairs_.emplace(std::pair(pair.source, pair.target), Pair{std::move(link), pair.link});
  return {};
}

Result<void> HostCommunicator::connect(Rendezvous& rendezvous) {
  MOTLEY_ASSIGN(address_, rendezvous.own_address());
  std::vector<int> everyone(static_cast<std::size_t>(size_));
  std::iota(everyone.begin(), everyone.end(), 0);
  try {
    const GlooGroup world = make_gloo(rendezvous, "world", everyone);
    for (std::size_t i = 0; i < options_.groups.size(); ++i) {
      MOTLEY_ASSIGN(Group group, make_group(rendezvous, i));
      groups_.push_back(std::move(group));
    }
    groups_.push_back({world, nullptr});
    // After the groups, each of which needs more shared memory.
    for (const PairOptions& pair : options_.pairs)
      MOTLEY_RETURN_IF_ERROR(connect_pair(rendezvous, pair));
    return {};
  } catch (const std::exception& fault) {
    return runtime_error("run.peer-lost",
                         fmt::format("rank {}: the {} ranks did not connect (own address {}): {}",
                                     rank_, size_, address_, failure_text(fault)));
  }
}

bool HostCommunicator::is_closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

Group HostCommunicator::group_at(std::size_t index) const {
  const std::lock_guard lock(mutex_);
  return closed_ ? Group() : groups_[index];
}

std::string HostCommunicator::describe_members(std::size_t index) const {
  if (index >= options_.groups.size()) return "all ranks";
  return fmt::format("ranks {}", fmt::join(options_.groups[index].members, " "));
}

std::string HostCommunicator::describe(SharedMemoryGroup::Failure failure,
                                       std::size_t index) const {
  if (failure.member < 0) return "the communicator was closed";
  const int rank = options_.groups[index].members[static_cast<std::size_t>(failure.member)];
  const bool late = failure.kind == SharedMemoryGroup::Failure::Kind::kLate;
  return fmt::format("rank {} {}", rank, late ? "has not come" : "has ended");
}

/// Runs one operation. Drops the groups on an error at once: open sockets keep the peers waiting.
template <typename Operation>
Result<void> HostCommunicator::run(std::size_t index, const char* what, const at::Tensor& tensor,
                                   const Operation& operation) {
  OperationFailed failed{};
  {
    const Group group = group_at(index);
    if (group.is_none())
      return runtime_error("run.closed",
                           fmt::format("rank {}: {} after an earlier error", rank_, what));
    try {
      operation(group);
      return {};
    } catch (OperationFailed& fault) {
      failed = std::move(fault);
    } catch (const std::exception& fault) {
      failed.cause = failure_text(fault);
      failed.late = failed.cause.find("imed out") != std::string::npos;
    }
  }
  if (is_closed()) {  // closed by another thread, which reports the error
    close();
    return runtime_error("run.closed",
                         fmt::format("rank {}: {} was ended by an earlier error", rank_, what));
  }
  close();
  return runtime_error(
      failed.late ? "run.timeout" : "run.peer-lost",
      fmt::format("rank {}: {} of {} bytes among {} {}: {}", rank_, what, tensor.nbytes(),
                  describe_members(index),
                  failed.late ? fmt::format("not done after {:g} s", options_.timeout.value)
                              : "failed, a peer is gone",
                  failed.cause));
}

/// Runs a message; `move` uses the link. Several threads may call it at once.
template <typename Move>
Result<std::int64_t> HostCommunicator::run(const Message& message, const Move& move) {
  const int peer = message.source == rank_ ? message.target : message.source;
  const std::string what =
      fmt::format("rank {}: {} {} rank {}", rank_, message.name, message.preposition, peer);
  Pair pair;
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return runtime_error("run.closed", what + " after an earlier error");
    const auto found = pairs_.find({message.source, message.target});
    MOTLEY_CHECK(found != pairs_.end());
    pair = found->second;
  }
  PeerLink::Failure failure{PeerLink::Failure::Kind::kLost, ""};
  try {
    const tl::expected<std::int64_t, PeerLink::Failure> moved = move(*pair.link);
    if (moved) {
      const std::int64_t link_ns = pair.emulated.exchange_ns(2, static_cast<double>(message.bytes));
      if (link_ns > 0) sleep_until_ns(*moved + link_ns);
      return *moved + link_ns;
    }
    failure = moved.error();
  } catch (const std::exception& fault) {
    failure.cause = failure_text(fault);
  }
  pair.link.reset();
  close();
  if (failure.kind == PeerLink::Failure::Kind::kClosed)
    return runtime_error("run.closed", what + " was ended by an earlier error");
  const bool is_late = failure.kind == PeerLink::Failure::Kind::kLate;
  return runtime_error(
      is_late ? "run.timeout" : "run.peer-lost",
      fmt::format("{}: {} bytes {}{}", what, message.bytes,
                  is_late ? fmt::format("not done after {:g} s, rank {} has not come",
                                        options_.timeout.value, peer)
                          : fmt::format("failed, rank {} has ended", peer),
                  failure.cause.empty() ? "" : ": " + failure.cause));
}

Result<std::int64_t> HostCommunicator::send(int peer, const at::Tensor& tensor) {
  MOTLEY_CHECK(tensor.is_contiguous());
  if (tensor.numel() == 0) return 0;
  return run(Message{rank_, peer, "send", "to", tensor.nbytes()},
             [&](PeerLink& link) { return link.move(on_host(tensor)); });
}

Result<std::int64_t> HostCommunicator::receive(int peer, at::Tensor& tensor) {
  MOTLEY_CHECK(tensor.is_contiguous());
  if (tensor.numel() == 0) return 0;
  return run(Message{peer, rank_, "receive", "from", tensor.nbytes()}, [&](PeerLink& link) {
    const at::Tensor host = host_like(tensor);
    auto moved = link.move(host);
    if (moved && !host.is_same(tensor)) tensor.copy_(host);
    return moved;
  });
}

Result<void> HostCommunicator::all_reduce(const ExchangeCall& call, at::Tensor& tensor) {
  const std::size_t index = call.group.index();
  MOTLEY_CHECK(index < options_.groups.size() && tensor.is_contiguous());
  const GroupOptions& options = options_.groups[index];
  if (tensor.numel() == 0 || options.members.size() < 2) return {};
  const auto ranks = static_cast<int>(options.members.size());
  const std::int64_t link_ns =
      options.link.all_reduce_ns(ranks, static_cast<std::int64_t>(tensor.nbytes()));
  return run(index, "all_reduce", tensor, [&](const Group& joined) {
    at::Tensor host = on_host(tensor);
    if (joined.gloo) {
      std::vector<at::Tensor> tensors{host};
      joined.gloo->allreduce(tensors)->wait();
    } else if (const auto done = joined.shared->all_reduce(host); !done) {
      throw OperationFailed{done.error().kind == SharedMemoryGroup::Failure::Kind::kLate,
                            describe(done.error(), index)};
    }
    if (!host.is_same(tensor)) tensor.copy_(host);
    pass_link(joined, link_ns);
  });
}

void HostCommunicator::pass_link(const Group& joined, std::int64_t link_ns) {
  const std::int64_t arrived = joined.gloo ? monotonic_ns() : joined.shared->last_arrival_ns();
  arrived_ns_ = arrived + link_ns;
  if (link_ns > 0) sleep_until_ns(arrived_ns_);
}

Result<void> HostCommunicator::run(const Exchange& exchange, const at::Tensor& in,
                                   at::Tensor& out) {
  const std::size_t index = exchange.group.index();
  const GroupOptions& options = options_.groups[index];
  if (options.members.size() < 2) {
    out.copy_(in);
    return {};
  }
  const std::int64_t link_ns =
      options.link.exchange_ns(static_cast<int>(options.members.size()), exchange.link_bytes);
  return run(index, exchange.name, in, [&](const Group& joined) {
    const at::Tensor source = on_host(in);
    at::Tensor target = host_like(out);
    if (joined.gloo) {
      exchange.by_gloo(*joined.gloo, source, target);
    } else if (const auto done = exchange.in_shared_memory(*joined.shared, source, target); !done) {
      throw OperationFailed{done.error().kind == SharedMemoryGroup::Failure::Kind::kLate,
                            describe(done.error(), index)};
    }
    if (!out.is_cpu()) out.copy_(target);
    pass_link(joined, link_ns);
  });
}

std::size_t HostCommunicator::place_in(GroupId group) const {
  MOTLEY_CHECK(group.index() < options_.groups.size());
  const std::vector<int>& members = options_.groups[group.index()].members;
  const auto place = std::find(members.begin(), members.end(), rank_);
  MOTLEY_CHECK(place != members.end());
  return static_cast<std::size_t>(place - members.begin());
}

Result<void> HostCommunicator::all_gather(const ExchangeCall& call, const Counts& counts,
                                          const at::Tensor& part, at::Tensor& all) {
  MOTLEY_CHECK(counts.at(place_in(call.group)) == part.numel());
  if (all.numel() == 0) return {};
  return run({"all_gather", call.group, spread_bytes(call.method, counts, part.element_size()),
              [&](SharedMemoryGroup& shared, const at::Tensor& in, at::Tensor& out) {
                return shared.all_gather(counts, in, out);
              },
              [&](c10d::Backend& gloo, const at::Tensor& in, at::Tensor& out) {
                gloo_all_gather(gloo, call.method, counts, in, out);
              }},
             part, all);
}

Result<void> HostCommunicator::reduce_scatter(const ExchangeCall& call, const Counts& counts,
                                              const at::Tensor& all, at::Tensor& part) {
  MOTLEY_CHECK(counts.at(place_in(call.group)) == part.numel());
  if (all.numel() == 0) return {};
  return run({"reduce_scatter", call.group, spread_bytes(call.method, counts, all.element_size()),
              [&](SharedMemoryGroup& shared, const at::Tensor& in, at::Tensor& out) {
                return shared.reduce_scatter(counts, in, out);
              },
              [&](c10d::Backend& gloo, const at::Tensor& in, at::Tensor& out) {
                gloo_reduce_scatter(gloo, call.method, counts, in, out);
              }},
             all, part);
}

Result<void> HostCommunicator::all_to_all(const ExchangeCall& call, const Splits& splits,
                                          const at::Tensor& in, at::Tensor& out) {
  const double moved = own_bytes(splits, place_in(call.group), in.element_size());
  return run({"all_to_all", call.group, moved,
              [&](SharedMemoryGroup& shared, const at::Tensor& from, at::Tensor& to) {
                return shared.all_to_all(splits, from, to);
              },
              [&](c10d::Backend& gloo, const at::Tensor& from, at::Tensor& to) {
                gloo_all_to_all(gloo, call.method, splits, from, to);
              }},
             in, out);
}

Result<void> HostCommunicator::broadcast(at::Tensor& tensor) {
  MOTLEY_CHECK(tensor.is_contiguous());
  if (tensor.numel() == 0 || size_ < 2) return {};
  return run(options_.groups.size(), "broadcast", tensor, [&](const Group& world) {
    // As bytes: Gloo does not support every element type.
    const at::Tensor host = on_host(tensor);
    std::vector<at::Tensor> bytes{host.view({-1}).view(at::kByte)};
    world.gloo->broadcast(bytes)->wait();
    if (!host.is_same(tensor)) tensor.copy_(host);
  });
}

void HostCommunicator::close() {
  std::vector<Group> dropped;
  std::map<std::pair<int, int>, Pair> ways;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(groups_);
  ways.swap(pairs_);
  for (const Group& group : dropped)
    if (group.shared) group.shared->close();
  for (const auto& [ranks, pair] : ways) pair.link->close();
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_host_communicator(Rendezvous& rendezvous,
                                                             const CommunicatorOptions& options) {
  auto communicator = std::make_unique<HostCommunicator>(rendezvous, options);
  MOTLEY_RETURN_IF_ERROR(communicator->connect(rendezvous));
  return communicator;
}

}  // namespace motley::run
