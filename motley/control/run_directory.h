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

/// Where the files of a run lie (docs/formats/run_directory.md).
struct RunDirectory {
  std::string path;
  std::string plan() const { return path + "/plan.json"; }
  std::string program() const { return path + "/program.txt"; }
  std::string evaluation(std::size_t i) const {
    return path + "/evaluation-" + std::to_string(i) + ".txt";
  }
  std::string job() const { return path + "/job.json"; }
  /// In its place where a script's own loop trains: the ranks' devices.
  std::string script() const { return path + "/script.json"; }
  /// Its cluster, as planning and running had it.
  std::string cluster() const { return path + "/cluster.toml"; }
  /// Locked by the process that has the directory, and which one that is (claim.h).
  std::string in_use() const { return path + "/in_use"; }
  /// Who leads the run, by which command; what it failed by.
  std::string start() const { return path + "/start.json"; }
  std::string failure() const { return path + "/failure.json"; }
  std::string summary() const { return path + "/summary.json"; }
  std::string log() const { return path + "/log.jsonl"; }
  std::string decisions() const { return path + "/decisions.jsonl"; }
  /// What a run that rents has paid and knows, and lifetimes that it saw.
  std::string renting() const { return path + "/renting.json"; }
  std::string lifetimes() const { return path + "/lifetimes.json"; }
  /// While an elastic job runs: where it can be asked.
  std::string control_socket() const { return path + "/door.json"; }
  /// Devices that came to an elastic job and that its cluster file has not.
  std::string joiners() const { return path + "/newcomers.json"; }
  std::string events() const { return path + "/tb"; }
  std::string predicted() const { return path + "/predicted.txt"; }
  std::string measured(std::size_t rank) const {
    return path + "/trace/rank-" + std::to_string(rank) + ".txt";
  }
  std::string model() const { return path + "/model.safetensors"; }
  std::string latest_checkpoint() const { return path + "/checkpoint/latest"; }
};

/// What one step of a run gave, over all ranks.
struct LoggedStep {
  double loss = 0;                      ///< NaN: not known, or no number
  double lr = 0;                        ///< the recipe's, in this step
  std::optional<double> gradient_norm;  ///< where the recipe asks for it
  double step_s = 0;                    ///< of the slowest rank
  double data_s = 0;     ///< of it, waiting for samples that Python loads: who waited longest
  double loading_s = 0;  ///< work of loading them, of one process: the busiest machine's
  int loaders = 0;       ///< processes that share this work there
  /// Samples, and square norms of gradients, where the batch is decided while training goes on.
  std::optional<std::int64_t> batch;
  std::optional<policy::NoiseSeen> noise;
  int generation = 0;             ///< which plan it was done by: the change that brought it
  std::vector<double> compute_s;  ///< by rank; of a script's loop empty where it is not known
  std::vector<std::int64_t> samples = {};  ///< by rank, of a script's loop
  std::vector<std::int64_t> peak_bytes;
};

/// What an evaluation gave.
struct LoggedEvaluation {
  run::Evaluation evaluation;
  bool is_best = false;  ///< of those until then
};

/// What is known of a run, by steps done before.
struct Log {
  std::map<std::int64_t, LoggedStep> steps;
  std::map<std::int64_t, LoggedEvaluation> evaluations;

  /// Forgets what comes from this step on: it is done again.
  void forget_from(std::int64_t step);
};

/// run_dir/log.jsonl; of a step that was run again the last counts. Lines that a killed process
/// left half written are skipped.
Result<Log> read_log(const RunDirectory& directory);
/// Adds the lines of a text to a log.
void read_log_lines(std::string_view text, Log& log);
std::string print_logged_step(std::int64_t step, const LoggedStep& logged);
std::string print_logged_evaluation(std::int64_t step, const LoggedEvaluation& logged);
/// {"step", "loss", "metrics": {name: value}}
Json evaluation_to_json(std::int64_t step, const run::Evaluation& evaluation);
Result<run::Evaluation> evaluation_from_json(JsonObject& object);

/// One trace of the traces that the ranks wrote, each by its machine's clock.
Result<trace::Trace> read_measured_trace(const RunDirectory& directory, std::size_t ranks);

/// The same by one clock, that of rank 0's machine, without what exchanges waited for others
/// (run_waits.h).
Result<trace::Trace> read_trace_by_one_clock(const RunDirectory& directory, const run::Job& job);

/// What its workers were told. A usage error where there is no run directory.
Result<run::Job> read_job(const RunDirectory& directory);

/// What a run that has finished left behind.
struct FinishedRun {
  RunDirectory directory;
  run::Job job;
  Json summary;                           ///< summary.json
  trace::Trace measured;                  ///< by one clock
  std::optional<trace::Trace> predicted;  ///< none: the run was started without profiles
};

/// Usage errors: no run directory; a run that has not finished.
Result<FinishedRun> read_run(const std::string& path);

}  // namespace motley::control
