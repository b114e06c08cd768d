#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/base/ids.h"
#include "motley/base/result.h"

namespace motley::run {

/// Elements of flat tensors by position in the group; 0 allowed.
using Counts = std::vector<std::int64_t>;

/// Who gives how much to whom, seen from one member.
struct Splits {
  Counts sends, receives;
  std::int64_t cell = 0;  ///< the most that any member gives another; of a padded all-to-all
};

/// Who exchanges, and in which way.
struct ExchangeCall {
  GroupId group;
  ExchangeMethod method = ExchangeMethod::kNative;
  ExchangeCall(GroupId group, ExchangeMethod method = ExchangeMethod::kNative)  // NOLINT
      : group(group), method(method) {}
};

/// Collectives among the ranks of a job, and messages between two. All members of a group call the
/// same operations in the same order.
/// The method changes how they go about it, and for sums the order and the rounding of 16-bit
/// floats. What has no way of its own runs natively; levels of hosts are made by
/// leveled_communicator.h.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Sum over the group, in place; `tensor` is contiguous. Blocks until done or until the timeout;
  /// after an error the communicator is closed and every later call fails at once. Called from the
  /// executor's transfer thread only.
  virtual Result<void> all_reduce(const ExchangeCall& call, at::Tensor& tensor) = 0;
  /// The members' parts, member after member; the same `counts` on all. These three take flat
  /// contiguous tensors of the sizes that the counts say, all of one dtype, and end as all_reduce.
  virtual Result<void> all_gather(const ExchangeCall& call, const Counts& counts,
                                  const at::Tensor& part, at::Tensor& all) = 0;
  /// The own part of the sum over the members: natively added up in their order (16-bit floats in
  /// float32).
  virtual Result<void> reduce_scatter(const ExchangeCall& call, const Counts& counts,
                                      const at::Tensor& all, at::Tensor& part) = 0;
  /// `in` is the parts for member 0, 1, ...; `out` those from member 0, 1, ...
  virtual Result<void> all_to_all(const ExchangeCall& call, const Splits& splits,
                                  const at::Tensor& in, at::Tensor& out) = 0;
  /// Gives a contiguous tensor of any dtype to the rank `peer`: its n-th receive from here gets the
  /// n-th send, of as many bytes. Over when the tensor may be written. Blocks until then or until
  /// the timeout, ends as all_reduce, or when another thread closes the communicator. Of each peer
  /// and direction by one thread; all may be under way at once, beside collectives too. Returns
  /// when it would have been over had nobody been woken late (monotonic clock; 0: not known).
  virtual Result<std::int64_t> send(int peer, const at::Tensor& tensor) = 0;
  virtual Result<std::int64_t> receive(int peer, at::Tensor& tensor) = 0;
  /// Overwrites `tensor` on all ranks with rank 0's. Called between steps only.
  virtual Result<void> broadcast(at::Tensor& tensor) = 0;
  /// "gloo", "gloo only" (without shared memory) or "nccl": key of measured times.
  virtual std::string transport() const { return "none"; }
  /// When the last exchange had what it needs of all members, by the monotonic clock: what is later
  /// than that and its own work, waking up, the machine is to blame for. 0: not known.
  virtual std::int64_t arrived_ns() const { return 0; }
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Drops the group so that peers that wait for us fail at once. Idempotent, any thread.
  virtual void close() = 0;
};

}  // namespace motley::run
