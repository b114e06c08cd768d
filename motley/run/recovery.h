#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/run/evaluation.h"

namespace motley::run {

/// The point of a training from which ranks continue with another program.
struct TrainingPoint {
  std::int64_t step = 0;             ///< steps done
  std::int64_t samples = 0;          ///< samples taken by these steps
  double elapsed_s = 0;              ///< since this job's first step began
  std::int64_t saved_step = -1;      ///< of this job's latest checkpoint
  std::string saved_path;            ///< "": none
  std::string saved_host;            ///< where it lies; "": at the coordinator
  std::int64_t evaluated_step = -1;  ///< of this job's latest evaluation
  std::optional<Best> best;
  bool operator==(const TrainingPoint&) const = default;
  static void fields(auto& it, auto& field) {
    field("step", it.step)("samples", it.samples)("elapsed_s", it.elapsed_s);
    field("saved_step", it.saved_step)("saved_path", it.saved_path)("saved_host", it.saved_host);
    field("evaluated_step", it.evaluated_step)("best", it.best);
  }
};

/// The position of a process that stopped because others were lost. No process completes a
/// transition that another could still miss: a step is decided by a sum over all ranks
/// (synth/state/commit.h), the tensors' next layout by a barrier after the move.
struct RecoveryState {
  std::string device;
  /// Its program determines the tensors' layout; the process may be idle. Negative: no tensors yet.
  int generation = 0;
  bool is_idle = false;   ///< in that generation
  bool has_left = false;  ///< idle, and took part in the move into it: all have their tensors
  bool is_open = false;   ///< stopped within a step
  bool may_end = false;   ///< it could complete the step in flight here, too
  int entering = 0;       ///< generation in whose layout the tensors lie as well; 0: none
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
/// Reads it from an event, which has other fields too.
Result<RecoveryState> recovery_state_from_json(const Json& json, const std::string& where);

struct Recovery {
  int generation = 0;
  TrainingPoint point;
  bool stops = false;  ///< only a checkpoint is still to be written
  /// The only source of the kept state: a checkpoint, "new" to start over, "": the processes.
  std::string from;
  bool is_loaded() const { return !from.empty() && from != "new"; }  ///< from a checkpoint
  bool operator==(const Recovery&) const = default;
  static void fields(auto& it, auto& field) {
    field("stint", it.generation)("point", it.point)("stops", it.stops)("from", it.from);
  }
};

/// Finds the farthest point of a training process in the latest generation, which all others can
/// reach. Idle processes hold nobody back. Runtime error `run.unsettled`: a process cannot reach
/// it, which violates the protocol, or none has tensors. Needs at least one state.
Result<Recovery> find_recovery(const std::vector<RecoveryState>& recovery_states);

}  // namespace motley::run
