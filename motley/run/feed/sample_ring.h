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

/// Samples in transit to the ranks of one host: a ring of slots in shared memory. Item i of the
/// host's sequence lies in slot i mod slots. The leader rank has the ring filled; ranks that need
/// an item read and release it; when all have, the slot is filled again.
///
///   slot.filled = i + 1 (mod 2^32) once item i is there; readers wait for it
///   slot.released = readers that are done with the item
///
/// The memory has no name: it is freed when the processes end, in whatever way.
class SampleRing {
 public:
  /// Creates the leader's ring. Runtime error `run.feed`: no memory for it.
  static Result<std::unique_ptr<SampleRing>> create(std::int64_t slots, std::int64_t slot_bytes);
  /// Opens the ring in another rank. `address`: the leader's address().
  static Result<std::unique_ptr<SampleRing>> open(const std::string& address);
  ~SampleRing();

  std::string address() const;
  /// Returns the file that the filling process maps; slots begin at data_offset().
  std::string memory_path() const;
  std::int64_t data_offset() const;
  std::int64_t slots() const;

  /// Leader: claims the item's slot for `readers` ranks. False: an earlier item is still in use.
  bool claim(std::int64_t item, int readers);
  void publish(std::int64_t item);
  /// Leader: ends the sequence with a reason. The first reason counts.
  void fail(const std::string& message);
  /// Leader: returns a descriptor that becomes readable when slots are released.
  int released_descriptor() const { return released_.read.number(); }
  void take_releases();

  /// Returns the count of all items published, to see whether loading progresses.
  std::uint32_t progress() const;
  /// Waits up to `most_ns` for the item. Returns whether it is there.
  bool wait_for(std::int64_t item, std::int64_t most_ns) const;
  /// Returns why the sequence ended; empty: it has not.
  std::optional<std::string> failure() const;
  const std::byte* sample(std::int64_t item) const;
  /// Marks this reader as done with the item. wake_leader notifies the leader of all releases.
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
  Pipe released_;  ///< the leader has both ends, others the writing end
};

}  // namespace motley::run
