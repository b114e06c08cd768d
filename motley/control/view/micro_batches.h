#pragma once

#include <vector>

#include "motley/program/program.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// Returns each instruction's micro-batch and direction by device, for pictures; empty for a device
/// without several micro-batches. With stages each replica has its own micro-batches. A program
/// does not record them, so they are inferred: the k-th slice of an input and the k-th message of a
/// kind belong to micro-batch k, and an instruction belongs to the latest micro-batch of its
/// tensors (of numbers only if it has no tensors). So adding a gradient to a sum belongs to the
/// gradient's micro-batch. Results that mix several belong to none for their readers, and updates
/// belong to none. The model's operators from the first `..._backward` on are backward. Linear.
std::vector<std::vector<report::Pass>> find_passes(const program::Program& program,
                                                   const std::vector<report::StageRow>& stages);

/// Returns the first operator of the model in the program that is named as backward; none if there
/// is none.
OpId find_first_backward(const program::Program& program);

/// Rank at the other end of each send and receive, by device and instruction; -1: neither.
report::Peers find_peers(const program::Program& program);

}  // namespace motley::control
