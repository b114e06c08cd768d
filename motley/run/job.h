#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/json.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/run/evaluation.h"
#include "motley/run/store_address.h"
#include "motley/run/training_settings.h"
#include "motley/run/worker_device.h"

namespace motley::run {

/// Settings of a job whose plan may change while it runs (change.h).
struct Changes {
  /// Steps before which the first changes begin, from another run; later ones when all are ready.
  std::vector<std::int64_t> at;
  /// The job survives lost processes: its programs have commits (synth/state/commit.h).
  bool is_elastic = false;
  /// Names of the devices that have no process at the beginning.
  std::vector<std::string> absent = {};
  bool is_absent(const std::string& device) const;
  /// Where the processes of an elastic job meet (run/hosts/key_server.h); none: in a file.
  std::optional<StoreAddress> keys = {};
  bool operator==(const Changes&) const = default;
  static void fields(auto& it, auto& field) {
    field("at", it.at)("elastic", it.is_elastic)("absent", it.absent).maybe("keys", it.keys);
  }
};

/// Settings of a job whose batch size changes. `steps` and the schedule then count samples in units
/// of the first batch: training ends after the samples that so many steps of the first batch take.
struct Batches {
  std::int64_t first = 0;  ///< samples per step at the start of the training
  std::int64_t most = 0;   ///< largest samples per step
  double lr_factor = 1;    ///< multiplies all learning rates of the job's program
  bool operator==(const Batches&) const = default;
  static void fields(auto& it, auto& field) {
    field("first", it.first)("most", it.most)("lr_factor", it.lr_factor);
  }
  Result<void> check(const std::string& where) const;
};

/// Everything a worker needs to train. `motley run` writes it as JSON (docs/formats/job.md) next to
/// the program; under a launcher rank 0 passes both on through the store.
struct Job : TrainingSettings {
  std::string run_dir;
  std::string program_path;
  std::string model_path;
  double lr = 0;  ///< of the recipe; a script's rates are relative to it
  std::optional<EvaluationJob> evaluation;
  std::vector<WorkerDevice> devices;  ///< by rank
  std::string rank_files;             ///< folder of per-rank files (rank_files.h); "": none
  /// Folder for ranks that keep parts of checkpoints on their hosts (at the coordinator: its name
  /// below each host's kept folder); "": none keeps parts.
  std::string kept;
  std::optional<StoreAddress> store;  ///< none: all ranks share the run directory
  /// Set: `devices` are those of all plans; the program may use some. None: the plan stays.
  std::optional<Changes> changes = {};
  std::optional<Batches> batches = {};  ///< none: all batches have one size
  bool operator==(const Job&) const = default;
  static void fields(auto& it, auto& field) {
    field("run_dir", it.run_dir)("program", it.program_path)("model", it.model_path);
    TrainingSettings::fields(it, field);
    field("lr", it.lr).maybe("evaluation", it.evaluation)("devices", it.devices);
    field("rank_files", it.rank_files).maybe("kept", it.kept).maybe("store", it.store);
    field.maybe("changes", it.changes).maybe("batches", it.batches);
  }
  Result<void> check(const std::string& where) const;
};
/// Returns the machines of all devices but the coordinator's; first_hosts skips absent devices.
std::set<std::string> remote_hosts(const Job& job);
std::set<std::string> first_hosts(const Job& job);
/// Tells whether each host has its own run directory. Otherwise all ranks share one.
bool has_own_directories(const Job& job);
Json job_to_json(const Job& job);
Result<Job> job_from_json(const Json& json, const std::string& where);

/// A line that a worker writes to stdout for its parent. `event`:
///   ready       weights loaded, group joined; first_step, memory_limit, resumed_from, note
///   step        step, loss, lr_factor, step_s, compute_s, wait_s, peak_bytes
///   evaluation  step, loss, metrics, is_best (rank 0)
///   checkpoint  step, path
///   carrying    (from the launcher) more bytes of a checkpoint were received; no fields
///   collectives collectives, backend, overlaps (verb "collectives", rank 0)
///   error       kind, code, message, instruction
///   done        steps, reason ("finished" | "stopped")
struct WorkerEvent {
  std::string event;
  int rank = 0;
  Json fields;
};
std::string print_event(const WorkerEvent& event);
Result<WorkerEvent> parse_event(std::string_view line);

/// Returns the error kind's name in events: "usage", "infeasible", "stale", "check", "runtime".
std::string_view error_kind_name(ErrorKind kind);
std::optional<ErrorKind> find_error_kind(std::string_view name);
/// Returns what an event "error" reports.
Error event_error(const WorkerEvent& event);

}  // namespace motley::run
