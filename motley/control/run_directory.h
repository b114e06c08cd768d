#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/result.h"
#include "motley/policy/observation.h"
#include "motley/run/evaluation.h"
#include "motley/run/job.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// The paths of a run's files (docs/formats/run_directory.md).
struct RunDirectory {
  std::string path;
  std::string plan() const { return path + "/plan.json"; }
  std::string program() const { return path + "/program.txt"; }
  std::string evaluation(std::size_t i) const {
    return path + "/evaluation-" + std::to_string(i) + ".txt";
  }
  std::string job() const { return path + "/job.json"; }
  /// The ranks' devices; replaces job.json where a script's own loop trains.
  std::string script() const { return path + "/script.json"; }
  /// The cluster as planning and the run used it.
  std::string cluster() const { return path + "/cluster.toml"; }
  /// Locked by the process that holds the directory; names that process (claim.h).
  std::string in_use() const { return path + "/in_use"; }
  /// Which process leads the run, with its command; and the error that ended it.
  std::string start() const { return path + "/start.json"; }
  std::string failure() const { return path + "/failure.json"; }
  std::string summary() const { return path + "/summary.json"; }
  std::string log() const { return path + "/log.jsonl"; }
  std::string decisions() const { return path + "/decisions.jsonl"; }
  /// What a run that rents has paid and learned; the lifetimes that it saw.
  std::string renting() const { return path + "/renting.json"; }
  std::string lifetimes() const { return path + "/lifetimes.json"; }
  /// The address of an elastic job's control socket while it runs.
  std::string control_socket() const { return path + "/door.json"; }
  /// Devices that joined an elastic job and are not in its cluster file.
  std::string joiners() const { return path + "/newcomers.json"; }
  std::string events() const { return path + "/tb"; }
  std::string predicted() const { return path + "/predicted.txt"; }
  std::string measured(std::size_t rank) const {
    return path + "/trace/rank-" + std::to_string(rank) + ".txt";
  }
  std::string model() const { return path + "/model.safetensors"; }
  std::string latest_checkpoint() const { return path + "/checkpoint/latest"; }
};

/// The results of one step over all ranks.
struct LoggedStep {
  double loss = 0;                      ///< NaN: unknown, or not a number
  double lr = 0;                        ///< of the recipe in this step
  std::optional<double> gradient_norm;  ///< where the recipe asks for it
  double step_s = 0;                    ///< of the slowest rank
  double data_s = 0;     ///< part of step_s: the longest wait for samples that Python loads
  double loading_s = 0;  ///< one process's loading time, on the busiest machine
  int loaders = 0;       ///< processes that share this work there
  /// Samples and square norms of gradients, where the batch is adapted during training.
  std::optional<std::int64_t> batch;
  std::optional<policy::NoiseSeen> noise;
  int generation = 0;             ///< the change that brought the plan of this step
  std::vector<double> compute_s;  ///< by rank; empty where a script's loop does not report it
  std::vector<std::int64_t> samples = {};  ///< by rank, of a script's loop
  std::vector<std::int64_t> peak_bytes;
};

struct LoggedEvaluation {
  run::Evaluation evaluation;
  bool is_best = false;
};

/// The known results of a run, by steps done before them.
struct Log {
  std::map<std::int64_t, LoggedStep> steps;
  std::map<std::int64_t, LoggedEvaluation> evaluations;

  /// Forgets the results from this step on, because the step is recomputed.
  void forget_from(std::int64_t step);
};

/// Reads run_dir/log.jsonl: the last entry of a step counts, incomplete lines are skipped.
Result<Log> read_log(const RunDirectory& directory);
void read_log_lines(std::string_view text, Log& log);
std::string print_logged_step(std::int64_t step, const LoggedStep& logged);
std::string print_logged_evaluation(std::int64_t step, const LoggedEvaluation& logged);
/// {"step", "loss", "metrics": {name: value}}
Json evaluation_to_json(std::int64_t step, const run::Evaluation& evaluation);
Result<run::Evaluation> evaluation_from_json(JsonObject& object);

/// Merges the traces of the ranks; each interval keeps the clock of its machine.
Result<trace::Trace> read_measured_trace(const RunDirectory& directory, std::size_t ranks);

/// Merges the traces on the clock of rank 0's machine, without waiting (run_waits.h).
Result<trace::Trace> read_trace_by_one_clock(const RunDirectory& directory, const run::Job& job);

/// Reads what the workers were given. Usage error: there is no run directory.
Result<run::Job> read_job(const RunDirectory& directory);

struct FinishedRun {
  RunDirectory directory;
  run::Job job;
  Json summary;
  trace::Trace measured;                  ///< on one clock
  std::optional<trace::Trace> predicted;  ///< none: the run was started without profiles
};

/// Usage errors: no run directory; a run that has not finished.
Result<FinishedRun> read_run(const std::string& path);

}  // namespace motley::control
