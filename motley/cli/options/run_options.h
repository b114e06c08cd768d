#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/cli/options/market_options.h"
#include "motley/cli/options/planning_options.h"
#include "motley/control/training/training.h"

namespace motley::cli {

/// How the batch may change (batch_options.h).
struct BatchOptions {
  std::string limits;     ///< MIN:MAX
  std::string rule;       ///< of learning rates
  std::string objective;  ///< time, cost or deadline:DURATION
  bool operator==(const BatchOptions&) const = default;
};

/// What `run` and `verify` have in common.
struct RunOptions {
  PlanOrFile plan;
  control::TrainChoices training;  ///< but for what make_train_choices makes of the rest
  std::string python;              ///< interpreter that loads samples
  control::EvaluationChoices evaluation;
  std::string eval_data;
  std::string adapt = "auto";     ///< auto, none, plan, split or batch
  std::string policy = "motley";  ///< of split or batch
  BatchOptions batch;
  std::string decisions;            ///< file of another run's, to be repeated
  bool elastic = false;             ///< goes on when devices are lost, come or leave
  std::optional<int> serve;         ///< port of a page that follows it
  RentOptions rent;                 ///< machines, while it trains
  int port = 0;                     ///< at which devices may join
  std::vector<std::string> absent;  ///< devices that are not there at the beginning
  std::string take_over;            ///< file of what a coordinator left that is gone
  std::string conditions;           ///< file of what happens to devices
  bool prepare = false;             ///< write the run directory, start nothing
};
std::vector<Flag> training_flags(RunOptions& options);
/// Of `run` alone.
std::vector<Flag> evaluation_flags(RunOptions& options);

/// All of it, checked, the run directory as given; `python` loads samples. Usage errors name the
/// flag, what was found and what is wanted.
Result<control::TrainChoices> make_train_choices(const RunOptions& options,
                                                 const std::string& python = "python3");

/// An interpreter with PyTorch and motley: as given, or MOTLEY_PYTHON, or python3.
std::string find_python(const std::string& given, const Context& context);

/// "runs/MODEL".
std::string default_run_dir(const std::string& model_path);

/// Trains with a printer of its own, whose progress is gone from the terminal at the end.
Result<control::Measured> train(const control::PreparedRun& prepared, const Context& context);

}  // namespace motley::cli
