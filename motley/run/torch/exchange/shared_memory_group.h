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

/// Collectives among processes of one machine through memory that all map. An all-reduce costs its
/// members one wait for each other (two for more than 16 KiB) and three passes over the data; no
/// socket, no thread. Every member gets the same bits: elements are summed in the order of the
/// members, those of 16-bit floats in float32.
///
///   pass p of a tensor, in pieces of at most `slot` bytes, q = p mod 2:
///     copy the piece to slot[q][own]; wait for all
///     small: sum slot[q][0..n) into the tensor
///     large: sum the own n-th part of slot[q][0..n) into slot[q][0]; wait for all; copy slot[q][0]
///   Slots of pass p are written again in pass p + 2, which nobody begins before all came to p + 1,
///   that is before all have read p.
///
/// The other operations cost one wait and two passes over the data for each slot's worth, whatever
/// the parts: every member writes what is its own and reads what it needs,
///   all-gather: in pass p the p-th slot's worth of each part
///   reduce-scatter: in each pass the same share of every part, so that all sum all the time
///   all-to-all: a slot begins with the offsets of the parts for member 0, 1, ..., n, by which the
///     others find theirs and know how many passes there are
/// Members that are gone are noticed by the file locks that they held, within 50 ms. One thread
/// calls the operations; any may call close.
class SharedMemoryGroup {
 public:
  struct Options {
    std::string path;  ///< of the shared file, made if need be; the same on all members
    int member = 0;    ///< this one's position
    int members = 1;
    Seconds timeout{30};  ///< of every wait
  };
  /// Error "run.shared-memory": the file cannot be made, or there is no room for it.
  static Result<std::unique_ptr<SharedMemoryGroup>> open(const Options& options);
  ~SharedMemoryGroup();

  /// Why an operation failed; all members learn the reason that came first.
  struct Failure {
    enum class Kind { kLost, kLate } kind;  ///< it ended or closed the group; it did not come
    int member;                             ///< the one to blame; -1: this one
  };
  /// Sum over the members, in place, of a contiguous CPU tensor; the same shape on all.
  tl::expected<void, Failure> all_reduce(at::Tensor& tensor);
  /// As Communicator's (motley/run/torch/exchange/communicator.h), on CPU tensors.
  tl::expected<void, Failure> all_gather(const Counts& counts, const at::Tensor& part,
                                         at::Tensor& all);
  tl::expected<void, Failure> reduce_scatter(const Counts& counts, const at::Tensor& all,
                                             at::Tensor& part);
  tl::expected<void, Failure> all_to_all(const Splits& splits, const at::Tensor& in,
                                         at::Tensor& out);
  /// When the last member came to the last operation (motley/run/torch/exchange/clock.h).
  std::int64_t last_arrival_ns() const;
  /// The members that wait, and all that come later, fail. Idempotent.
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
  std::uint32_t meetings_ = 0;  // that this member came to
  std::uint32_t passes_ = 0, operations_ = 0;
};

}  // namespace motley::run
