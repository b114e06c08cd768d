#pragma once

#include "motley/base/result.h"
#include "motley/cli/context/verb.h"
#include "motley/cli/options/run_options.h"
#include "motley/control/planning/chosen_plan.h"
#include "motley/control/training/batches.h"

namespace motley::cli {

/// Flags of `run --adapt batch` and `simulate --adapt batch`.
std::vector<Flag> batch_flags(BatchOptions& options);

/// Their texts as values, but for what data says.
Result<control::BatchChoices> read_batch_choices(const BatchOptions& options,
                                                 const std::string& policy);

/// The same with the data's; opens the data to know how many samples it has. Usage errors name the
/// flag, what was found and what is wanted.
Result<control::BatchChoices> make_batch_choices(const RunOptions& options,
                                                 const control::ChosenPlan& chosen,
                                                 const control::TrainChoices& training);

/// Usage error: a flag of these was given and the batch stays.
Result<void> refuse_batch_flags(const BatchOptions& options);

}  // namespace motley::cli
