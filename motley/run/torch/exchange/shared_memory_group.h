#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/torch/exchange/communicator.h"

namespace motley::run {

/// Collectives among processes of one machine through shared memory. An all-reduce costs each
/// member one synchronization (two above 16 KiB) and three passes over the data, without sockets or
/// threads. Every member gets identical bits: elements are summed in member order, 16-bit floats in
/// float32.
///
///   pass p of a tensor, in pieces of at most `slot` bytes, q = p mod 2:
///     copy the piece to slot[q][own]; wait for all
///     small: sum slot[q][0..n) into the tensor
///     large: sum the own n-th part of slot[q][0..n) into slot[q][0]; wait for all; copy slot[q][0]
///   Slots of pass p are rewritten in pass p + 2, which nobody begins before all have reached p + 1
///   and so have read p.
///
/// The other operations cost one synchronization and two passes over the data per slot's worth,
/// whatever the parts: every member writes its own data and reads what it needs,
///   all-gather: in pass p the p-th slot's worth of each part
///   reduce-scatter: in each pass the same share of every part, so that all members always sum
///   all-to-all: a slot begins with the offsets of the parts for member 0, 1, ..., n, by which the
///     others find their parts and the number of passes
/// Lost members are detected within 50 ms by the file locks that they held. One thread calls the
/// operations; any may call close.
class SharedMemoryGroup {
 public:
  struct Options {
    std::string path;  ///< of the shared file, created if needed; equal on all members
    int member = 0;    ///< position of this one
    int members = 1;
    Seconds timeout{30};  ///< of every wait
  };
  /// Opens the group. Runtime error "run.shared-memory": no file, or no space for it.
  static Result<std::unique_ptr<SharedMemoryGroup>> open(const Options& options);
  ~SharedMemoryGroup();

  /// Why an operation failed; all members learn the first reason.
  struct Failure {
    enum class Kind { kLost, kLate } kind;  ///< kLost: ended or closed the group; kLate: missing
    int member;                             ///< the cause; -1: this one
  };
  /// Sums a contiguous CPU tensor over the members in place; equal shapes on all.
  tl::expected<void, Failure> all_reduce(at::Tensor& tensor);
  /// As in Communicator, on CPU tensors.
  tl::expected<void, Failure> all_gather(const Counts& counts, const at::Tensor& part,
                                         at::Tensor& all);
  tl::expected<void, Failure> reduce_scatter(const Counts& counts, const at::Tensor& all,
                                             at::Tensor& part);
  tl::expected<void, Failure> all_to_all(const Splits& splits, const at::Tensor& in,
                                         at::Tensor& out);
  /// Returns when the last member reached the last operation (clock.h).
  std::int64_t last_arrival_ns() const;
  /// Fails members that wait and all later calls. Idempotent.
  void close();

 private:
  struct Header;
  struct Seat;
  SharedMemoryGroup(const Options& options, int file, std::byte* memory, std::size_t slot_bytes);
  Seat& seat(int member) const;
  std::byte* slot(int member) const;
  void begin_operation();
  template <typename T, typename Sum>
  tl::expected<void, Failure> scatter(const Counts& counts, const T* data, T* part);
  template <typename T, typename Sum>
  tl::expected<void, Failure> reduce(T* data, std::int64_t count);
  template <typename T, typename Sum>
  tl::expected<void, Failure> reduce_piece(T* data, std::int64_t count);
  tl::expected<void, Failure> meet();
  tl::expected<void, Failure> find_lost() const;
  tl::expected<void, Failure> fail(Failure failure);
  int first_missing() const;
  bool is_alive(int member) const;

  Options options_;
  int file_;
  std::byte* memory_;
  std::size_t slot_bytes_;
  std::uint32_t meetings_ = 0;  // reached by this member
  std::uint32_t passes_ = 0, operations_ = 0;
};

}  // namespace motley::run
