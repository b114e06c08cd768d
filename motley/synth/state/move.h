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
  /// Names of the devices that take part, by rank of the move: all of the new program, and those of
  /// the old one that still give what they have. Others of the old program have nothing any more.
  std::vector<std::string> devices;
  /// Of `devices` those that lost what they had: a device that died and is there again.
  std::set<std::string> lost = {};
  /// Host of a device by its name: who is on the receiver's own sends first. None: all are
  /// identical.
  std::function<std::string(const std::string&)> host_of = nullptr;
  /// A message has no more than this, but for a single element; two of a sender to a receiver are
  /// in memory at both ends at once.
  Bytes message = Bytes(4 << 20);
};

/// A rank's part of a move.
struct RankMove {
  /// New tensors that are the old one of the same name, element by element, but perhaps for its
  /// shape: constants too. They are not among the move's new buffers.
  std::vector<std::string> kept;
  /// States that no device of the old program has: they begin as in a new training.
  std::vector<std::string> fresh;
  Bytes sent, received;
  Bytes copied;  ///< from an old tensor here to a new one
};

struct Move {
  program::Program program;     ///< verified; hashes are those of the new one, of no samples
  std::vector<RankMove> ranks;  ///< by rank of the program
};

/// The program that takes state from its old form to a new one. Each device gets of each parameter,
/// state and model buffer of the new program what its part of it is: what it has stays or is copied
/// from there, and exactly the rest is received, each element once, from one of those that have it.
/// What all can have from the model file (constants) is not moved, unless it is kept; states that
/// the new program lacks are left.
///
/// A device's buffers: all that it had as "old/NAME" (program/state_names.h), and what is new under
/// its own name, zeros at first. An executor of the move is given the old executor's tensors as
/// `shared` by these names; after its step the new executor is given what the move's has under
/// other ones and, of the old ones, those that are kept, in the new shape
/// (run/torch/lanes/moved_tensors.h).
///
/// Messages are bundles of pieces of one dtype. Pieces of which few devices have copies are given
/// out first, then large ones, each to whoever of those that have it, on the receiver's host if one
/// is there, has least to send so far; so senders differ by a message where all have all. In round
/// r all take their r-th message for each other; nobody takes a message before having put all that
/// came two rounds before, and so none waits for what comes later: no deadlock, even where a send
/// lasts until it is received.
///
/// O(pieces * holders) in time, where a tensor whose cuts nest (part_boxes.h) has a piece for each
/// pair of an old and a new part that meet, or more where these are larger than a message.
///
/// Faults: `synth.move-lost` (usage): nobody has a range of a tensor any more, with both named;
/// `synth.move-model` (stale): programs of unequal models; `synth.move-form` (usage): a tensor of
/// two dtypes or sizes; `synth.move-devices` (usage): `devices` lacks one of the new program or has
/// one twice, or what a device does is in another file.
Result<Move> lower_move(const program::Program& from, const program::Program& to,
                        const MoveOptions& options);

}  // namespace motley::synth
