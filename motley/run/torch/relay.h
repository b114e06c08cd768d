#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/run/launch/environment.h"
#include "motley/run/torch/reporter.h"

namespace motley::run {

/// Carries bytes between the coordinator of an external launcher's job (its rank 0) and the agents
/// on its other ranks, through the launcher's store. First reports {"event": "relay", "address"},
/// this rank's address for the others.
///
/// Beside the coordinator it connects to the Unix socket at `path` for each rank that it hears of,
/// sends "rank K\n", and forwards both ways until its own input ends. Elsewhere (`path` empty) it
/// forwards its input to the coordinator and the answers to its output, until either ends. Keeps
/// few pieces in flight. Error: of the store, whose server is at rank 0 (or torchrun's).
Result<void> carry_bytes(const RankPlace& place, const std::string& path, const Reporter& reporter);

}  // namespace motley::run
