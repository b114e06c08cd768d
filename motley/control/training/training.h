#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "motley/base/json_forward.h"
#include "motley/control/claim.h"
#include "motley/control/outside.h"
#include "motley/control/planning/planning.h"
#include "motley/control/planning/prediction.h"
#include "motley/control/training/adapting.h"
#include "motley/control/training/evaluating.h"
#include "motley/control/training/monitor.h"
#include "motley/control/training/renting.h"
#include "motley/data/dataset.h"
#include "motley/simulate/conditions.h"

namespace motley::control {

/// What workers hold emulated devices to.
enum class Enforce {
  kSpeedsAndLinks,
  kSpeeds,   ///< links are limited outside, by tc
  kNothing,  ///< speeds, too, by control groups
};

/// How a plan is to be trained.
struct TrainChoices : run::TrainingSettings {
  double epochs = 0;  ///< steps: of so many times all samples; 0: as `steps` says
  std::optional<EvaluationChoices> evaluation;
  std::string run_dir;  ///< everything is written there
  /// Whose disks have what ranks on other hosts keep in parts of a checkpoint.
  enum class PartsAt { kLead, kHosts };
  PartsAt parts_at = PartsAt::kLead;
  Enforce enforce = Enforce::kSpeedsAndLinks;
  /// Of emulated devices on this machine: those that become slow for a while. Nothing else of it.
  simulate::Conditions conditions;
  std::vector<std::string> notices = {};    ///< who says that machines will be gone (notices.h)
  std::string notice_hook = "";             ///< a command that is started for each
  std::optional<RentChoices> renting = {};  ///< of an elastic run, whose machines are rented
  std::vector<std::string> arguments = {};  ///< of the command, so that it can be repeated
};

/// A run whose directory has plan, program and job: all that workers need. Refers to what it was
/// prepared from.
struct PreparedRun {
  std::shared_ptr<const Claim> claim = nullptr;  ///< of the directory
  const Inputs* inputs = nullptr;
  const Planned* planned = nullptr;
  TrainChoices choices;
  RunDirectory directory;
  run::Job job;
  std::optional<Seconds> predicted;                  ///< of a step
  std::vector<Bytes> predicted_peaks = {};           ///< by rank; empty: there is no prediction
  std::vector<program::Program> evaluations = {};    ///< as the job has them
  std::shared_ptr<Adaptation> adaptation = nullptr;  ///< null: it stays as it is
};

/// The plan that a run has ended by, and what was said of it.
struct LastPlan {
  const Planned* planned = nullptr;
  std::optional<Seconds> predicted;
  std::vector<Bytes> predicted_peaks = {};
};
LastPlan last_plan(const PreparedRun& prepared, const Measured& measured);
/// What a rank of that plan did, in its order.
struct RankSummary {
  std::string device;
  std::int64_t samples = 0;
  std::optional<double> busy;
  std::optional<std::int64_t> peak_bytes;
};
std::vector<RankSummary> rank_summaries(const PreparedRun& prepared, const Measured& measured);

/// Everything that can be wrong with model and data is said before a worker starts. The number of
/// samples that count; -1: a stream. A source that is loaded learns how many it has.
Result<std::int64_t> check_trainable(const Inputs& inputs,
                                     const std::optional<std::uint64_t>& shuffle,
                                     data::DataSource& source);

/// Checks the data against the model and writes the run directory, with the prediction if there is
/// one (null: none). Usage errors: a model without weights; data that does not fit, by name.
/// `adaptation`: none, or what the run may become; the plan is the candidate that runs first.
Result<PreparedRun> prepare_run(const Inputs& inputs, const Planned& planned,
                                const Predicted* predicted, const TrainChoices& choices,
                                std::shared_ptr<Adaptation> adaptation = nullptr);

/// Starts the workers, follows what they report (monitor.h) until all have ended, and writes
/// summary.json. Told to stop, by a signal or the listener, is no error: Measured says so. Errors
/// say which rank failed where (run/launch/launcher.h); a run that is interrupted so continues when
/// it is trained again.
Result<Measured> train(const PreparedRun& prepared, const Outside& outside);

/// What `motley run --json` prints and summary.json keeps (docs/interfaces.md).
Json summary_to_json(const Measured& measured, const PreparedRun& prepared);

}  // namespace motley::control
