#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/data/dataset.h"
#include "motley/run/schedule.h"

namespace motley::run {

/// How a job trains: set by flags, written into job.json by `motley run`, applied by workers.
struct TrainingSettings {
  data::DataSource data;
  std::optional<std::uint64_t> shuffle;  ///< seed of the samples' order; none: as in the data
  std::int64_t steps = 0;                ///< stop after this many in total
  Schedule schedule;                     ///< of the learning rates
  std::uint64_t seed = 0;                ///< of dropout and other random numbers
  std::int64_t checkpoint_every = 0;     ///< steps; 0: only at the end or when stopped
  bool resume = true;                    ///< from run_dir/checkpoint/latest if it exists
  Seconds timeout{30};                   ///< of every wait for a peer
  std::string transport = "auto";        ///< of collectives: auto, or gloo even within a machine
  std::int64_t trace_steps = 5;          ///< number of last steps kept as a trace
  bool operator==(const TrainingSettings&) const = default;
  static void fields(auto& it, auto& field) {
    field("data", it.data).maybe("shuffle", it.shuffle)("steps", it.steps)("schedule", it.schedule);
    field("seed", it.seed)("checkpoint_every", it.checkpoint_every)("resume", it.resume);
    field("timeout_s", it.timeout)("transport", it.transport)("trace_steps", it.trace_steps);
  }
};

}  // namespace motley::run
