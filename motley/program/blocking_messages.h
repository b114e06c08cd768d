#pragma once

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::program {

/// The program as a runtime runs it whose sends and receives block: each is between two
/// instructions of its compute lane, at both ends, and all of a device are one after the other. For
/// predictions of what other tools measured: workers' messages never block.
///
/// A device gets a value in front of what first waits for it, and sends one behind what makes it.
/// Of two devices that exchange, the one of lower rank keeps to the other's order, so it takes
/// part in whatever comes before its own message there (a gradient before the next activation), and
/// no two wait for each other: ranks are those of a pipeline's stages, in order. Fault
/// (program.blocking) where they wait all the same, for what comes later.
Result<Program> block_messages(const Program& program);

}  // namespace motley::program
