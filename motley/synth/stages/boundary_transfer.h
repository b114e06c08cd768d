#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "motley/synth/stages/stage_programs.h"

namespace motley::synth {

/// Brings boundary values from the devices of the stage that makes them to those of a stage that
/// reads them, each row once: makers bring them into the form in which they travel and send pieces,
/// readers put these together in front of their first operator that reads them. What computes waits
/// for all that it reads, so tasks before it need not.
class BoundaryTransfer {
 public:
  /// Both must outlive it.
  BoundaryTransfer(ShardedStages& stages, StagePrograms& programs)
      : stages_(stages), programs_(programs), received_(stages.seats.size()) {}

  /// Sends the boundary value at this place, as soon as it is made.
  void pass_on(std::size_t value);
  /// What an operator of a stage reads is there.
  void join_operands(const Seat& seat, const graph::Op& op);

 private:
  /// A boundary value that has come and that no operator has read yet.
  struct Received {
    std::size_t value;
    std::vector<BufferId> pieces;  ///< in order
  };

  const std::string& label_of(std::size_t value) const;
  /// How the devices of a stage have the value while it travels.
  graph::Form form_on(std::size_t stage, std::size_t value) const;
  /// What the reader gets of a piece, from what its maker has.
  BufferId send(std::size_t value, const BoundaryPiece& piece, BufferId made);
  void join(const Seat& seat, ValueId value);

  ShardedStages& stages_;
  StagePrograms& programs_;
  std::vector<std::map<ValueId, Received>> received_;  // by seat
};

}  // namespace motley::synth
