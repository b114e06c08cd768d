#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/units.h"
#include "motley/cli/context.h"
#include "motley/cli/run_directory.h"
#include "motley/cluster/cluster.h"
#include "motley/data/dataset.h"
#include "motley/graph/model_file.h"
#include "motley/plan/plan.h"
#include "motley/run/environment.h"

namespace motley::cli {

/// A training to be done under a verified plan.
struct Training {
  const graph::Model* model = nullptr;
  std::string model_path;
  const cluster::Cluster* cluster = nullptr;
  plan::Plan plan;
  data::DataSource data;
  std::optional<std::uint64_t> shuffle;
  std::int64_t steps = 0;
  std::uint64_t seed = 0;
  std::string run_dir;
  bool resume = true;
  std::int64_t checkpoint_every = 0;
  double timeout_s = 30;
  std::string transport = "auto";
  std::int64_t trace_steps = 5;
  bool enforce_speed = true;  ///< false: something outside holds the devices to their speed
  bool enforce_links = true;  ///< false: something outside limits the links
  std::optional<Seconds> predicted_step;
  std::optional<run::RankPlace> place;  ///< this process is one rank of an external launcher's job
  std::string predicted_trace;          ///< text form, kept in the run directory; "" = none
};

struct TrainingResult {
  std::vector<double> losses;  ///< of every step since the beginning
  double step_s_median = 0;    ///< of the steps of this call, the first left out
  std::string checkpoint;
  std::int64_t lost_steps = 0;  ///< steps done again because a run ended without a checkpoint
  std::int64_t first_step = 0;  ///< where this call began
  std::vector<double> busy;     ///< compute time / step time, by rank
  std::vector<std::int64_t> peak_bytes;  ///< by rank
  bool stopped = false;                  ///< told to stop; the checkpoint is safe
};

/// Checks the data, lowers the plan, writes the run directory, starts the workers (or is one rank
/// of an external launcher's job, see `place`), shows progress and collects what they report.
Result<TrainingResult> train(const Training& training, const Context& context);

/// Ranks other than 0 of an external launcher's job: fetch job and program from rank 0 and run.
/// Returns the worker's exit code.
Result<int> join_job(const run::RankPlace& place, const Context& context);

/// Rank of this process in an external launcher's job; empty without one.
Result<std::optional<run::RankPlace>> rank_place(const Context& context);

/// Fields of a TrainingResult as interfaces.md names them.
Json training_to_json(const TrainingResult& result, const Training& training);

}  // namespace motley::cli
