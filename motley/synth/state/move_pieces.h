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
  std::string buffer;  ///< its name: the tensor's, or a mirror's
  TensorRows rows;
};

/// A tensor of the new program, and who has and wants which rows of it: one may have several, in
/// mirrors.
struct MovedTensor {
  std::string name;
  DType dtype = DType::kF32;
  program::BufferKind kind = program::BufferKind::kParameter;
  std::int64_t elements = 0;  ///< of the whole
  bool is_known = false;      ///< some device of the old program has or had it
  std::vector<HeldRows> held, wanted;
};

/// Elements that go from one device's old tensor to another's new one, or the same device's.
struct MovePiece {
  std::size_t tensor = 0;
  std::size_t held = 0, wanted = 0;  ///< of the tensor's
  Rank source, target;
  program::Box from, into;  ///< of the same extents
  std::int64_t elements = 0;
};

/// What a move does, before there are messages.
struct MovePieces {
  std::vector<MovedTensor> tensors;  ///< by their first mention in the new program
  std::vector<MovePiece> pieces;     ///< by tensor, then target; a piece is a message at most
  std::vector<std::vector<std::string>> kept, fresh;  ///< by rank: buffers (move.h)
};

/// By rank of the move the old and the new program; null: none.
struct MovedDevices {
  std::vector<const program::DeviceProgram*> from, to;
};
Result<MovedDevices> find_moved_devices(const program::Program& from, const program::Program& to,
                                        const MoveOptions& options);

/// Of a dtype the most that a message has, at least one.
std::int64_t most_elements(const MoveOptions& options, DType dtype);

/// Rules, cost and faults: move.h.
Result<MovePieces> find_move_pieces(const program::Program& from, const program::Program& to,
                                    const MoveOptions& options);

}  // namespace motley::synth
