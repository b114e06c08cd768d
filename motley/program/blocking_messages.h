#pragma once

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::program {

/// Returns the program as a runtime with blocking sends and receives runs it: at both ends each
/// message is between two instructions of the compute lane, and all messages of a device are
/// serial. Used to predict what other tools measured; the messages of our workers never block.
///
/// A device receives a value before the first instruction that waits for it, and sends one after
/// the instruction that makes it. Of two devices that exchange, the lower rank follows the other's
/// order, so it handles everything that comes before its own message there (a gradient before the
/// next activation) and the two never deadlock: ranks are those of a pipeline's stages, in order.
/// Fault (program.blocking) where they would wait all the same, for something later.
Result<Program> block_messages(const Program& program);

}  // namespace motley::program
