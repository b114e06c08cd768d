#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/program/boxes.h"
#include "motley/program/program.h"
#include "motley/synth/state/move.h"
#include "motley/synth/state/part_boxes.h"

namespace motley::synth {

/// Rows of a tensor in one of a device's buffers.
struct HeldRows {
  Rank rank;           ///< of the move
  std::string buffer;  ///< the tensor's name, or a mirror's
  TensorRows rows;
};

/// A tensor of the new program with held and wanted rows; mirrors add rows to a rank.
struct MovedTensor {
  std::string name;
  DType dtype = DType::kF32;
  program::BufferKind kind = program::BufferKind::kParameter;
  std::int64_t elements = 0;  ///< of the whole tensor
  bool is_known = false;      ///< a device of the old program has or had it
  std::vector<HeldRows> held, wanted;
};

/// Elements that move from an old tensor to a new one, on two devices or on one.
struct MovePiece {
  std::size_t tensor = 0;
  std::size_t held = 0, wanted = 0;  ///< index in the tensor's
  Rank source, target;
  program::Box from, into;  ///< of the same extents
  std::int64_t elements = 0;
};

/// The pieces of a move, before they are bundled into messages.
struct MovePieces {
  std::vector<MovedTensor> tensors;  ///< in order of first use in the new program
  std::vector<MovePiece> pieces;     ///< by tensor, then target; each fits in a message
  std::vector<std::vector<std::string>> kept, fresh;  ///< by rank: buffers (move.h)
};

/// The old and the new program, by rank of the move; null if there is none.
struct MovedDevices {
  std::vector<const program::DeviceProgram*> from, to;
};
Result<MovedDevices> find_moved_devices(const program::Program& from, const program::Program& to,
                                        const MoveOptions& options);

/// Returns the most elements of a dtype in a message; at least 1.
std::int64_t most_elements(const MoveOptions& options, DType dtype);

/// Finds the pieces of a move; rules, cost and errors as in move.h.
Result<MovePieces> find_move_pieces(const program::Program& from, const program::Program& to,
                                    const MoveOptions& options);

}  // namespace motley::synth
