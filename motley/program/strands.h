#pragma once

#include <compare>
#include <cstddef>
#include <vector>

#include "motley/program/program.h"

namespace motley::program {

enum class Direction { kReceive, kSend };

/// What a device runs in order: its compute lane, its transfer lane, or from its peer lane the
/// sends to one rank or the receives from one rank. Strands run at the same time.
struct Strand {
  Lane lane = Lane::kCompute;
  Rank peer;                                  ///< at the other end; of the peer lane only
  Direction direction = Direction::kReceive;  ///< of the peer lane only
  auto operator<=>(const Strand&) const = default;
};

/// Returns the strand of an instruction; `peer` is none for a peer instruction that names no rank.
Strand strand_of(const Instruction& instruction);

/// The numbered strands of a device: 0 is the compute lane and 1 the transfer lane, even without
/// instructions. Then come those of peers that have instructions, by rank, receives first.
struct Strands {
  static constexpr std::size_t kCompute = 0, kTransfer = 1;
  std::vector<Strand> all;      ///< by number
  std::vector<std::size_t> of;  ///< by instruction: its strand's number
};
Strands find_strands(const DeviceProgram& program);

/// Which instructions have certainly finished when an instruction starts: those before it in its
/// strand, those that it waits for, and those that had finished when these started. Per strand this
/// is a prefix. Built in O(instructions + waits * strands). Waits name earlier instructions.
///
/// Example: receive ^1 waits for compute ^0, compute ^2 for ^1, send ^3 for ^2. When ^3 starts, the
/// compute lane has finished up to ^2 and the strand of ^1 up to ^1.
class Order {
 public:
  explicit Order(const DeviceProgram& program);

  const Strands& strands() const { return strands_; }
  /// Returns the last instruction of another strand that has certainly finished when `i` starts, or
  /// none.
  InstructionId finished(std::size_t i, std::size_t strand) const {
    return clocks_[clock_of_[i] * strands_.all.size() + strand];
  }
  /// Returns whether `before` (none, or earlier than `i`) has finished when `i` starts.
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
