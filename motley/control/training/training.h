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

/// Which limits of emulated devices workers enforce.
enum class Enforce {
  kSpeedsAndLinks,
  kSpeeds,   ///< links are limited externally, by tc
  kNothing,  ///< speeds also, by control groups
};

struct TrainChoices : run::TrainingSettings {
  double epochs = 0;  ///< sets the steps to so many passes over the samples; 0: use `steps`
  std::optional<EvaluationChoices> evaluation;
  std::string run_dir;
  /// Whose disks store other hosts' parts of a checkpoint.
  enum class PartsAt { kLead, kHosts };
  PartsAt parts_at = PartsAt::kLead;
  Enforce enforce = Enforce::kSpeedsAndLinks;
  /// Temporary slow-downs of emulated devices on this machine, and nothing else.
  simulate::Conditions conditions;
  std::vector<std::string> notices = {};  ///< sources of notices (notices.h)
  std::string notice_hook = "";           ///< command started for each notice
  std::optional<RentChoices> renting = {};
  std::vector<std::string> arguments = {};  ///< of the command, so that it can be repeated
};

/// A run directory with everything that workers need. Refers to the inputs and the plan.
struct PreparedRun {
  std::shared_ptr<const Claim> claim = nullptr;
  const Inputs* inputs = nullptr;
  const Planned* planned = nullptr;
  TrainChoices choices;
  RunDirectory directory;
  run::Job job;
  std::optional<Seconds> predicted;         ///< step time
  std::vector<Bytes> predicted_peaks = {};  ///< by rank; empty: no prediction
  std::vector<program::Program> evaluations = {};
  std::shared_ptr<Adaptation> adaptation = nullptr;  ///< null: the plan stays
};

/// The plan at the end of a run, and its prediction.
struct LastPlan {
  const Planned* planned = nullptr;
  std::optional<Seconds> predicted;
  std::vector<Bytes> predicted_peaks = {};
};
LastPlan last_plan(const PreparedRun& prepared, const Measured& measured);
struct RankSummary {
  std::string device;
  std::int64_t samples = 0;
  std::optional<double> busy;
  std::optional<std::int64_t> peak_bytes;
};
std::vector<RankSummary> rank_summaries(const PreparedRun& prepared, const Measured& measured);

/// Checks model and data before a worker starts. Returns the number of samples; -1: a stream. A
/// loaded source learns its number.
Result<std::int64_t> check_trainable(const Inputs& inputs,
                                     const std::optional<std::uint64_t>& shuffle,
                                     data::DataSource& source);

/// Checks the data and writes the run directory, with the prediction if not null. Usage errors: no
/// weights; data that does not fit, by name. `adaptation`: null if the plan stays; `planned` is its
/// first candidate.
Result<PreparedRun> prepare_run(const Inputs& inputs, const Planned& planned,
                                const Predicted* predicted, const TrainChoices& choices,
                                std::shared_ptr<Adaptation> adaptation = nullptr);

/// Runs the workers, follows them (monitor.h), and writes summary.json. A stop by a signal or the
/// listener is no error; Measured reports it. Errors name rank and place (run/launch/launcher.h);
/// the interrupted run continues when trained again.
Result<Measured> train(const PreparedRun& prepared, const Outside& outside);

/// The output of `motley run --json`, kept in summary.json (docs/interfaces.md).
Json summary_to_json(const Measured& measured, const PreparedRun& prepared);

}  // namespace motley::control
