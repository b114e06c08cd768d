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
  int survive = 1;                 ///< so many devices may be lost at once; >= 0
  std::vector<std::string> hosts;  ///< by rank; empty: each device is a host
  std::vector<Bytes> room = {};    ///< by rank, memory for mirrors; empty: enough
};

/// A stretch of a tensor of which a mirror has a copy.
struct MirroredRows {
  std::string tensor;
  program::Box box;  ///< of the tensor seen flat
  std::int64_t elements = 0;
};

/// What some devices have, and too few, of which other devices keep copies.
struct Mirror {
  std::vector<Rank> holders;  ///< who has it by the program; the first gives what changes
  std::vector<Rank> keepers;  ///< who has copies beside them
  std::vector<MirroredRows> rows;
  Bytes kept;  ///< by each keeper
  /// What a keeper gets in a step: of parameters the gradient of these rows, with which it does the
  /// optimizer's step that the holders do; model buffers themselves.
  Bytes per_step;
};

struct Mirrors {
  std::vector<Mirror> mirrors;              ///< by holders
  std::vector<Bytes> kept, sent, received;  ///< by rank; the latter two in a step
  /// Any so many may be lost at once and all is there: as asked, or less.
  int survives_devices = 0;
  int survives_hosts = 0;  ///< any so many hosts, up to as many
};

/// Says who keeps copies of which parts, so that parameters, states and model buffers outlive the
/// loss of any `survive` devices: each element is to be on survive + 1 of them. What has fewer
/// holders goes, with all else that has the same holders, to as many others as it lacks: in turn to
/// whoever is on a host that has none of it yet, then to whoever has least of mirrors (least of its
/// room, where that is given), then to the lower rank; what is largest first, and a first copy of
/// all before a second one. Where too few are left, or have room, it has fewer copies, and
/// `survives_devices` says so. Constants are in the model file and need none. Mirrors that the
/// program has already count as what their devices hold.
///
///   4 devices on 2 hosts, parameters whole, Adam's states in four parts of b bytes: each keeps the
///   part of one of the other host. 2 b bytes of a part are two states of n floats: kept 8 n, in a
///   step 4 n bytes of gradient to each.
///
/// O(devices^2) a tensor. Faults: `synth.mirrors` (usage): options of another number of ranks; what
/// a device does is in another file; a tensor of two dtypes or sizes.
Result<Mirrors> choose_mirrors(const program::Program& program, const MirrorOptions& options);

}  // namespace motley::synth
