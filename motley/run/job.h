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

/// That a job's plan may change while it runs (change.h).
struct Changes {
  /// Steps before which the first changes begin, as it was decided in another run. Those after them
  /// begin as soon as all are ready.
  std::vector<std::int64_t> at;
  /// The job goes on when processes are lost: its programs have commits (synth/state/commit.h).
  bool is_elastic = false;
  /// Devices that have no process at the beginning, by name.
  std::vector<std::string> absent = {};
  bool is_absent(const std::string& device) const;
  /// Where the processes of an elastic job meet (run/hosts/key_server.h); none: in a file.
  std::optional<StoreAddress> keys = {};
  bool operator==(const Changes&) const = default;
  static void fields(auto& it, auto& field) {
    field("at", it.at)("elastic", it.is_elastic)("absent", it.absent).maybe("keys", it.keys);
  }
};

/// That the batch changes while a job trains. Then what `steps` and the schedule count are samples,
/// in units of the first batch: the training ends when as many have been taken as in so many steps
/// of it.
struct Batches {
  std::int64_t first = 0;  ///< samples a step that the training began with
  std::int64_t most = 0;   ///< that any step has
  double lr_factor = 1;    ///< of all learning rates, by which the job's program begins
  bool operator==(const Batches&) const = default;
  static void fields(auto& it, auto& field) {
    field("first", it.first)("most", it.most)("lr_factor", it.lr_factor);
  }
  Result<void> check(const std::string& where) const;
};

/// Everything a worker needs to train. Written by `motley run` as JSON (docs/formats/job.md) next
/// to the program; under a launcher rank 0 hands both to the others through the store.
struct Job : TrainingSettings {
  std::string run_dir;
  std::string program_path;
  std::string model_path;
  double lr = 0;  ///< of the recipe, to which a script's rates are relative
  std::optional<EvaluationJob> evaluation;
  std::vector<WorkerDevice> devices;  ///< by rank
  std::string rank_files;  ///< folder of what each rank here needs alone (rank_files.h); "": none
  /// Of ranks that keep parts of checkpoints on their own hosts: the folder for it, at the
  /// coordinator its name below what each host keeps; "": none does.
  std::string kept;
  std::optional<StoreAddress> store;  ///< none: all ranks share the run directory
  /// Then `devices` are those of all plans, of which the program may use some. None: it stays.
  std::optional<Changes> changes = {};
  std::optional<Batches> batches = {};  ///< none: all of one size
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
/// The machines of its devices other than the coordinator's; of those that are not absent at first.
std::set<std::string> remote_hosts(const Job& job);
std::set<std::string> first_hosts(const Job& job);
/// Has each of its hosts a run directory of its own? Else all ranks see one.
bool has_own_directories(const Job& job);
Json job_to_json(const Job& job);
Result<Job> job_from_json(const Json& json, const std::string& where);

/// A line that a worker writes to stdout for whoever started it. `event`:
///   ready       weights loaded, group joined; first_step, memory_limit, resumed_from, note
///   step        step, loss, lr_factor, step_s, compute_s, wait_s, peak_bytes
///   evaluation  step, loss, metrics, is_best (rank 0)
///   checkpoint  step, path
///   carrying    (of the launcher) bytes of a checkpoint have come by the way of its own words
///   collectives entries (verb "collectives", rank 0)
///   error       kind, code, message, instruction
///   done        steps, reason ("finished" | "stopped")
struct WorkerEvent {
  std::string event;
  int rank = 0;
  Json fields;
};
std::string print_event(const WorkerEvent& event);
Result<WorkerEvent> parse_event(std::string_view line);

/// Names of error kinds in events: "usage", "infeasible", "stale", "check", "runtime".
std::string_view error_kind_name(ErrorKind kind);
std::optional<ErrorKind> find_error_kind(std::string_view name);

}  // namespace motley::run
