#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "motley/base/result.h"
#include "motley/run/futex.h"
#include "motley/run/hosts/child_process.h"

namespace motley::run {

/// Samples on their way to the ranks of one host, in memory that they share: a ring of slots, a
/// sample each. Item i of the host's sequence lies in slot i mod slots. One rank, the leader, has
/// it filled; those that need the item read it and release it, and the slot is filled again when
/// all have.
///
///   slot.filled = i + 1 (mod 2^32) once item i is there; readers wait for it
///   slot.released = readers of the item that are done with it
///
/// The memory has no name: it goes with the processes, however they end.
class SampleRing {
 public:
  /// The leader's. Runtime error `run.feed`: no memory for it.
  static Result<std::unique_ptr<SampleRing>> create(std::int64_t slots, std::int64_t slot_bytes);
  /// Another rank's of the same host: `address` as the leader's address() says.
  static Result<std::unique_ptr<SampleRing>> open(const std::string& address);
  ~SampleRing();

  /// Where others of this host find it.
  std::string address() const;
  /// The file to map for who fills it; its slots begin at data_offset().
  std::string memory_path() const;
  std::int64_t data_offset() const;
  std::int64_t slots() const;

  /// Leader: makes the item's slot its own; `readers`: how many will release it. False: an earlier
  /// item's readers are not done.
  bool claim(std::int64_t item, int readers);
  /// Leader: the item is there.
  void publish(std::int64_t item);
  /// Leader: nothing follows; why. The first reason counts.
  void fail(const std::string& message);
  /// Leader: a descriptor that becomes readable when slots are released.
  int released_descriptor() const { return released_.read.number(); }
  /// Leader: reads the descriptor empty.
  void take_releases();

  /// Items published so far, of any: whether loading gets on.
  std::uint32_t progress() const;
  /// Is the item there? Waits up to `most_ns` for it.
  bool wait_for(std::int64_t item, std::int64_t most_ns) const;
  /// Why nothing follows; empty: it goes on.
  std::optional<std::string> failure() const;
  const std::byte* sample(std::int64_t item) const;
  /// This reader is done with the item. The leader hears of all that were released by wake_leader.
  void release(std::int64_t item);
  void wake_leader();

 private:
  struct Header;
  struct Slot;
  SampleRing(Descriptor file, std::byte* memory, std::size_t bytes)
      : file_(std::move(file)), memory_(memory), bytes_(bytes) {}
  Header& header() const;
  Slot& slot(std::int64_t item) const;

  Descriptor file_;
  std::byte* memory_;
  std::size_t bytes_;
  Pipe released_;  ///< the leader has both ends, others the one to write to
};

}  // namespace motley::run
