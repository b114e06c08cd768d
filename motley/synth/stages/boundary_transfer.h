#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "motley/synth/stages/stage_programs.h"

namespace motley::synth {

/// Sends boundary values from makers to readers, each row once. Makers bring them into the form in
/// which they travel; readers join the pieces in front of the first operator that reads them, so
/// that tasks before it need not wait.
class BoundaryTransfer {
 public:
  /// Both must outlive it.
  BoundaryTransfer(ShardedStages& stages, StagePrograms& programs)
      : stages_(stages), programs_(programs), received_(stages.seats.size()) {}

  /// Sends a boundary value that is made now.
  void pass_on(std::size_t value);
  /// Joins the pieces of an operator's operands.
  void join_operands(const Seat& seat, const graph::Op& op);

 private:
  /// A boundary value that no operator has read yet.
  struct Received {
    std::size_t value;
    std::vector<BufferId> pieces;  ///< in order
  };

  const std::string& label_of(std::size_t value) const;
  /// Returns the form in which the devices of a stage have a boundary value.
  graph::Form form_on(std::size_t stage, std::size_t value) const;
  /// Sends a piece of the maker's buffer; returns the reader's.
  BufferId send(std::size_t value, const BoundaryPiece& piece, BufferId made);
  void join(const Seat& seat, ValueId value);

  ShardedStages& stages_;
  StagePrograms& programs_;
  std::vector<std::map<ValueId, Received>> received_;  // by seat
};

}  // namespace motley::synth
