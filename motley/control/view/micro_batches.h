#pragma once

#include <vector>

#include "motley/program/program.h"
#include "motley/report/page/report_data.h"

namespace motley::control {

/// Which micro-batch each instruction works on, and in which direction, by device; of a device
/// without several nothing. With stages each replica has micro-batches of its own. For pictures, as
/// a program does not say it: the k-th slice of an input and the k-th message of a kind are the
/// k-th micro-batch's, and an instruction's is the latest of those of its tensors (numbers count
/// where nothing else does), so that what adds a gradient to a sum is of the micro-batch that gives
/// it. What mixes several is of none for those that read it; nor is an update. Operators of the
/// model from the first `..._backward` on are backward. Linear.
std::vector<std::vector<report::Pass>> find_passes(const program::Program& program,
                                                   const std::vector<report::StageRow>& stages);

/// The first operator of the model whose name says that it is of the backward pass, as far as the
/// program has it; none where it has no such.
OpId find_first_backward(const program::Program& program);

/// Rank at the other end of each send and receive, by device and instruction; -1: it is none.
report::Peers find_peers(const program::Program& program);

}  // namespace motley::control
