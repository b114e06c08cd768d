#pragma once

#include "motley/base/result.h"
#include "motley/cli/context/verb.h"
#include "motley/cli/options/run_options.h"
#include "motley/control/planning/chosen_plan.h"
#include "motley/control/training/batches.h"

namespace motley::cli {

/// Flags of `run --adapt batch` and `simulate --adapt batch`.
std::vector<Flag> batch_flags(BatchOptions& options);

/// Parses the flags, without what depends on the data.
Result<control::BatchChoices> read_batch_choices(const BatchOptions& options,
                                                 const std::string& policy);

/// Completes the choices with the number of samples in the data. Usage errors name the flag.
Result<control::BatchChoices> make_batch_choices(const RunOptions& options,
                                                 const control::ChosenPlan& chosen,
                                                 const control::TrainChoices& training);

/// Usage error: one of these flags was given, but the batch stays.
Result<void> refuse_batch_flags(const BatchOptions& options);

}  // namespace motley::cli
