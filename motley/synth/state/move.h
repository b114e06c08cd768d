#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/program/program.h"

namespace motley::synth {

struct MoveOptions {
  /// Names of the participating devices, by rank of the move: all of the new program, and those of
  /// the old one that still have their state. The state of other old devices is lost.
  std::vector<std::string> devices;
  /// Those of `devices` that lost their state: restarted devices.
  std::set<std::string> lost = {};
  /// Returns a device's host: senders on the receiver's host come first. Null: all on one host.
  std::function<std::string(const std::string&)> host_of = nullptr;
  /// Limit of a message, unless one element exceeds it. Both ends hold two messages per pair.
  Bytes message = Bytes(4 << 20);
};

/// A rank's part of a move.
struct RankMove {
  /// New tensors identical to the old one of the same name up to their shape, including constants.
  /// They are not among the move's new buffers.
  std::vector<std::string> kept;
  /// States that no device of the old program has: they start as in a new training.
  std::vector<std::string> fresh;
  Bytes sent, received;
  Bytes copied;  ///< from an old tensor of this rank to a new one
};

struct Move {
  program::Program program;     ///< verified; has the new program's hashes, no samples
  std::vector<RankMove> ranks;  ///< by rank of the program
};

/// Returns the program that moves state from its old form to a new one. Each device obtains its
/// part of each parameter, state and model buffer of the new program. What it already has stays or
/// is copied; exactly the rest is received, each element once, from one of its holders. What all
/// devices can read from the model file (constants) is not moved, unless it is kept. States that
/// the new program lacks are dropped.
///
/// A device's buffers are its old ones as "old/NAME" (program/state_names.h) and the new ones under
/// their own names, initially zero. The move's executor receives the old executor's tensors as
/// `shared` by these names. After the move the new executor receives the other tensors and those
/// old ones that are kept, in the new shape (run/torch/lanes/moved_tensors.h).
///
/// Messages are bundles of pieces of one dtype. Pieces with few holders are assigned first, then
/// large ones. Each goes to the holder with the least to send so far, on the receiver's host if one
/// is there, so senders differ by at most a message if all hold everything. In round r all ranks
/// pack their r-th message for each other. A rank packs a message only after unpacking all messages
/// of two rounds before. So no rank waits for a later message: there is no deadlock, even if a send
/// blocks until it is received.
///
/// O(pieces * holders) time. A tensor whose cuts nest (part_boxes.h) has a piece for each
/// overlapping pair of an old and a new part, or more if these exceed a message.
///
/// Errors: `synth.move-lost` (usage): no device has a range of a tensor any more, both named;
/// `synth.move-model` (stale): programs of different models; `synth.move-form` (usage): a tensor of
/// two dtypes or sizes; `synth.move-devices` (usage): `devices` lacks a device of the new program
/// or has one twice, or a device's program is in another file.
Result<Move> lower_move(const program::Program& from, const program::Program& to,
                        const MoveOptions& options);

}  // namespace motley::synth
