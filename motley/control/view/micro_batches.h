#pragma once

#include <vector>

#include "motley/program/program.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// Infers each instruction's micro-batch and direction, by device, for pictures; empty for a device
/// without several micro-batches. With stages each replica has its own. The k-th slice of an input
/// and the k-th message of a kind belong to micro-batch k; other instructions belong to the latest
/// of their tensors (of numbers only without tensors), so accumulating a gradient belongs to the
/// gradient's. Mixed results count for no reader, and updates have none. The model's operators from
/// the first `..._backward` on are backward. Linear.
std::vector<std::vector<report::Pass>> find_passes(const program::Program& program,
                                                   const std::vector<report::StageRow>& stages);

/// Returns the program's first operator of the model that is named as backward; none: no such one.
OpId find_first_backward(const program::Program& program);

/// Rank at the other end of each send and receive, by device and instruction; -1: neither.
report::Peers find_peers(const program::Program& program);

}  // namespace motley::control
