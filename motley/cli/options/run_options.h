#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/cli/options/market_options.h"
#include "motley/cli/options/planning_options.h"
#include "motley/control/training/training.h"

namespace motley::cli {

struct BatchOptions {
  std::string limits;  ///< MIN:MAX
  std::string rule;
  std::string objective;
  bool operator==(const BatchOptions&) const = default;
};

/// The common flags of `run` and `verify`.
struct RunOptions {
  PlanOrFile plan;
  control::TrainChoices training;
  std::string python;  ///< interpreter that loads samples
  control::EvaluationChoices evaluation;
  std::string eval_data;
  std::string adapt = "auto";     ///< auto, none, plan, split or batch
  std::string policy = "motley";  ///< for split or batch
  BatchOptions batch;
  std::string decisions;     ///< file of another run's, to repeat
  bool elastic = false;      ///< continues when devices are lost, join or leave
  std::optional<int> serve;  ///< port of the run's page
  RentOptions rent;          ///< machines, during training
  int port = 0;              ///< where devices may join
  std::vector<std::string> absent;
  std::string take_over;   ///< file with the state of a lost coordinator
  std::string conditions;  ///< file of what happens to devices
  bool prepare = false;    ///< write the run directory, start nothing
};
std::vector<Flag> training_flags(RunOptions& options);
std::vector<Flag> evaluation_flags(RunOptions& options);

/// Returns the checked choices; `python` loads samples. Usage errors name the flag.
Result<control::TrainChoices> make_train_choices(const RunOptions& options,
                                                 const std::string& python = "python3");

/// Returns an interpreter with PyTorch and motley: the given one, or MOTLEY_PYTHON, or python3.
std::string find_python(const std::string& given, const Context& context);

std::string default_run_dir(const std::string& model_path);

Result<control::Measured> train(const control::PreparedRun& prepared, const Context& context);

}  // namespace motley::cli
