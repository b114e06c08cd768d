#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/base/ids.h"
#include "motley/base/result.h"

namespace motley::run {

/// Elements of flat tensors by position in the group; may be 0.
using Counts = std::vector<std::int64_t>;

/// How much one member sends to, and receives from, each other member.
struct Splits {
  Counts sends, receives;
  std::int64_t cell = 0;  ///< largest part between any two members; for a padded all-to-all
};

/// The group and the method of an exchange.
struct ExchangeCall {
  GroupId group;
  ExchangeMethod method = ExchangeMethod::kNative;
  ExchangeCall(GroupId group, ExchangeMethod method = ExchangeMethod::kNative)  // NOLINT
      : group(group), method(method) {}
};

/// Collectives among the ranks of a job, and messages between two. All members of a group call the
/// same operations in the same order. The method changes the algorithm and, for sums, the order and
/// the rounding of 16-bit floats. Operations without an implementation of the method run natively;
/// leveled_communicator.h adds the hierarchical ones.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Sums over the group in place; `tensor` is contiguous. Blocks until done or the timeout. An
  /// error closes the communicator for good. Called from the executor's transfer thread only.
  virtual Result<void> all_reduce(const ExchangeCall& call, at::Tensor& tensor) = 0;
  /// Concatenates the members' parts; `counts` is equal on all. This and the next two take flat
  /// contiguous tensors of one dtype, with sizes as in the counts, and end as all_reduce does.
  virtual Result<void> all_gather(const ExchangeCall& call, const Counts& counts,
                                  const at::Tensor& part, at::Tensor& all) = 0;
  /// Returns the own part of the sum; natively added in member order (16-bit floats in float32).
  virtual Result<void> reduce_scatter(const ExchangeCall& call, const Counts& counts,
                                      const at::Tensor& all, at::Tensor& part) = 0;
  /// Exchanges parts. `in`: for member 0, 1, ...; `out`: from member 0, 1, ...
  virtual Result<void> all_to_all(const ExchangeCall& call, const Splits& splits,
                                  const at::Tensor& in, at::Tensor& out) = 0;
  /// Sends a contiguous tensor of any dtype to rank `peer`, whose n-th receive from here matches
  /// the n-th send and has the same bytes. Blocks until the tensor may be overwritten or until the
  /// timeout. Ends as all_reduce, or when another thread closes the communicator. One thread per
  /// peer and direction; all may be in flight at once, beside collectives too. Returns when it
  /// would have ended without late wake-ups (monotonic clock; 0: unknown).
  virtual Result<std::int64_t> send(int peer, const at::Tensor& tensor) = 0;
  virtual Result<std::int64_t> receive(int peer, at::Tensor& tensor) = 0;
  /// Overwrites `tensor` on all ranks with rank 0's. Called only between steps.
  virtual Result<void> broadcast(at::Tensor& tensor) = 0;
  /// Returns "gloo", "gloo only" (without shared memory) or "nccl": a key of measured times.
  virtual std::string transport() const { return "none"; }
  /// Returns when the last exchange had all members' data, by the monotonic clock; 0: unknown. Any
  /// delay beyond that and its own work is late wake-up, caused by the machine.
  virtual std::int64_t arrived_ns() const { return 0; }
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Drops the groups so that waiting peers fail at once. Idempotent, any thread.
  virtual void close() = 0;
};

}  // namespace motley::run
