#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/run/launch/environment.h"
#include "motley/run/torch/reporter.h"

namespace motley::run {

/// Carries bytes between the coordinator of a job that an external launcher started (its rank 0)
/// and the agents that are its other ranks, through the launcher's store; says {"event": "relay",
/// "address"} first, by which others see this rank.
///
/// Beside the coordinator it connects to the Unix socket at `path` once for each rank that it hears
/// of, says "rank K\n" there, and carries on in both directions, until its own input ends.
/// Elsewhere
/// (`path` empty) it carries its input to the coordinator and what comes from there to its output,
/// until one of them ends. Few pieces are under way at a time. Error: of the store, whose server is
/// at rank 0 (or torchrun's).
Result<void> carry_bytes(const RankPlace& place, const std::string& path, const Reporter& reporter);

}  // namespace motley::run
