#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/program/program.h"
#include "motley/synth/state/part_boxes.h"

namespace motley::synth {

struct MirrorOptions {
  int survive = 1;                 ///< devices that may be lost at once; >= 0
  std::vector<std::string> hosts;  ///< by rank; empty: each device is a host
  std::vector<Bytes> room = {};    ///< by rank, memory for mirrors; empty: unlimited
};

/// A mirrored range of a tensor.
struct MirroredRows {
  std::string tensor;
  program::Box box;  ///< of the flattened tensor
  std::int64_t elements = 0;
};

/// Rows that too few devices hold, with copies on other devices.
struct Mirror {
  std::vector<Rank> holders;  ///< have it in the program; the first sends changes
  std::vector<Rank> keepers;  ///< have additional copies
  std::vector<MirroredRows> rows;
  Bytes kept;  ///< on each keeper
  /// Received by a keeper per step: the gradient of these rows, with which it repeats the holders'
  /// optimizer step; model buffers themselves.
  Bytes per_step;
};

struct Mirrors {
  std::vector<Mirror> mirrors;              ///< by holders
  std::vector<Bytes> kept, sent, received;  ///< by rank; the latter two per step
  /// Any this many devices can be lost without losing state; at most `survive`.
  int survives_devices = 0;
  int survives_hosts = 0;  ///< the same for hosts
};

/// Chooses keepers so that parameters, states and model buffers survive the loss of any `survive`
/// devices: each element needs survive + 1 holders. Rows with fewer holders are grouped by holders;
/// each group gets the missing number of keepers. The next keeper is on a host without a copy if
/// possible, then has the least mirrors (relative to its room, if given), then the lowest rank.
/// Large groups go first, and all first copies before the second ones. With too few devices or too
/// little room there are fewer copies, as `survives_devices` tells. Constants need none, as they
/// are in the model file. Existing mirrors of the program count as held.
///
///  4 devices on 2 hosts, parameters whole, Adam's states in four parts of b bytes: each keeps the
///  part of a device of the other host. 2 b bytes of a part are two states of n floats: 8 n kept,
///  and 4 n bytes of gradient sent to each keeper per step.
///
/// O(devices^2) per tensor. Usage error `synth.mirrors`: options for another number of ranks, a
/// device whose program is in another file, or a tensor of two dtypes or sizes.
Result<Mirrors> choose_mirrors(const program::Program& program, const MirrorOptions& options);

}  // namespace motley::synth
