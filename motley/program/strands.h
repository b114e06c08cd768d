#pragma once

#include <compare>
#include <cstddef>
#include <vector>

#include "motley/program/program.h"

namespace motley::program {

enum class Direction { kReceive, kSend };

/// What a device runs in order: its compute lane, its transfer lane, or, of its peer lane, the
/// sends to one rank or the receives from it. Strands run at the same time.
struct Strand {
  Lane lane = Lane::kCompute;
  Rank peer;                                  ///< at the other end; of the peer lane only
  Direction direction = Direction::kReceive;  ///< of the peer lane only
  auto operator<=>(const Strand&) const = default;
};

/// By lane and arguments; of a peer instruction that names no rank `peer` is none.
Strand strand_of(const Instruction& instruction);

/// The strands of a device, numbered: 0 is the compute lane, 1 the transfer lane, whether they have
/// instructions or not; then those of peers that have some, by rank, receives first.
struct Strands {
  static constexpr std::size_t kCompute = 0, kTransfer = 1;
  std::vector<Strand> all;      ///< by number
  std::vector<std::size_t> of;  ///< by instruction: its strand's number
};
Strands find_strands(const DeviceProgram& program);

/// What has finished for sure when an instruction starts: what is before it in its strand, what it
/// waits for, and what had finished when those started. For each strand that is all up to some
/// instruction. Made in O(instructions + waits * strands); waits name earlier instructions.
///
/// Example: receive ^1 waits for compute ^0, compute ^2 for ^1, send ^3 for ^2. When ^3 starts, the
/// compute lane has finished up to ^2 and the strand of ^1 up to ^1.
class Order {
 public:
  explicit Order(const DeviceProgram& program);

  const Strands& strands() const { return strands_; }
  /// The last instruction of a strand, other than its own, that has finished when `i` starts; none:
  /// none has for sure.
  InstructionId finished(std::size_t i, std::size_t strand) const {
    return clocks_[clock_of_[i] * strands_.all.size() + strand];
  }
  /// Has `before`, which is none or earlier than `i`, finished when `i` starts?
  bool has_finished(InstructionId before, std::size_t i) const {
    if (before.is_none()) return true;
    const std::size_t strand = strands_.of[before.index()];
    return strand == strands_.of[i] || before <= finished(i, strand);
  }

 private:
  const Strands strands_;
  std::vector<std::size_t> clock_of_;  // by instruction; instructions without waits share
  std::vector<InstructionId> clocks_;  // by clock and strand
};

}  // namespace motley::program
