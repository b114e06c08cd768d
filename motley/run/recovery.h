#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/run/evaluation.h"

namespace motley::run {

/// Where a training stands, for ranks that go on by another program.
struct TrainingPoint {
  std::int64_t step = 0;             ///< steps done
  std::int64_t samples = 0;          ///< taken by them, of the order of all samples
  double elapsed_s = 0;              ///< since the first of them of this job began
  std::int64_t saved_step = -1;      ///< of the latest checkpoint of this job
  std::string saved_path;            ///< "": there is none
  std::string saved_host;            ///< where it lies; "": at the coordinator
  std::int64_t evaluated_step = -1;  ///< of the latest evaluation of this job
  std::optional<Best> best;
  bool operator==(const TrainingPoint&) const = default;
  static void fields(auto& it, auto& field) {
    field("step", it.step)("samples", it.samples)("elapsed_s", it.elapsed_s);
    field("saved_step", it.saved_step)("saved_path", it.saved_path)("saved_host", it.saved_host);
    field("evaluated_step", it.evaluated_step)("best", it.best);
  }
};

/// Where one process stands that has stopped, as others were lost. Both ways to come further have
/// in common that nobody is there before all could be: a step is decided by a sum of all ranks
/// (synth/state/commit.h), the tensors' next form by a barrier behind the move.
struct RecoveryState {
  std::string device;
  /// By whose program the tensors lie; it may be idle in it. Negative: it has just come and has
  /// none.
  int generation = 0;
  bool is_idle = false;   ///< in that generation
  bool has_left = false;  ///< idle, and had a part in the move into it: all have their tensors
  bool is_open = false;   ///< a step was stopped here
  bool may_end = false;   ///< the step under way could be ended here, too
  int entering = 0;       ///< generation in whose form the tensors lie as well; 0: none
  TrainingPoint point;
  bool operator==(const RecoveryState&) const = default;
  static void fields(auto& it, auto& field) {
    field("device", it.device)("stint", it.generation)("is_idle", it.is_idle)("has_left",
                                                                              it.has_left);
    field("is_open", it.is_open)("may_end", it.may_end)("entering", it.entering);
    field("point", it.point);
  }
};
Json recovery_state_to_json(const RecoveryState& recovery_state);
/// Of an event, which has other fields, too.
Result<RecoveryState> recovery_state_from_json(const Json& json, const std::string& where);

/// From where all go on.
struct Recovery {
  int generation = 0;
  TrainingPoint point;
  bool stops = false;  ///< all that is still done is a checkpoint
  /// What is kept is loaded from there and lies nowhere else: a checkpoint, or "new" for a training
  /// that begins anew. "": processes have it.
  std::string from;
  bool is_loaded() const { return !from.empty() && from != "new"; }  ///< from a checkpoint
  bool operator==(const Recovery&) const = default;
  static void fields(auto& it, auto& field) {
    field("stint", it.generation)("point", it.point)("stops", it.stops)("from", it.from);
  }
};

/// The farthest point at which somebody stands who trains, or did until the generation: all others
/// can come there. Idle ones go from generation to generation alone, and hold nobody back. Runtime
/// error `run.unsettled` where one cannot, which breaks what the protocol promises, and where
/// nobody that is left has tensors. One at least.
Result<Recovery> find_recovery(const std::vector<RecoveryState>& recovery_states);

}  // namespace motley::run
