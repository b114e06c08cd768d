#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/cli/context/verb.h"
#include "motley/cli/options/market_options.h"
#include "motley/cli/options/run_options.h"
#include "motley/control/planning/chosen_plan.h"
#include "motley/control/rehearsal/rehearsal.h"
#include "motley/control/training/splits.h"

namespace motley::cli {

/// Flags of `simulate` for trainings that adapt.
struct RehearsalOptions {
  std::string adapt;   ///< "": none
  std::string policy;  ///< for split and batch; "": motley
  std::string decisions;
  std::int64_t change_steps = 3;
  /// Seconds of a change beside its move; see docs/formats/conditions.md.
  double change_pause = control::kChangeCost.value;
  BatchOptions batch;
  std::string noise_scale;         ///< for batch: samples, or their course (noise_course.h)
  std::int64_t epoch_samples = 0;  ///< for batch; 0: unknown
  RentOptions rent;
  std::vector<std::string> absent;
};
std::vector<Flag> rehearsal_flags(RehearsalOptions& options);
/// Checks what the flags alone show, before any file is read.
Result<void> check_rehearsal(const RehearsalOptions& options, std::int64_t steps);

/// A rehearsal by a policy, and the same training as planned and with all conditions known.
struct Rehearsals {
  std::string adapt;
  control::Rehearsed decided, as_planned;
  std::optional<control::Rehearsed>
      knowing_all;  ///< none: the batch is adapted without prices of splits
};
/// Rehearses the training, and writes the decisions. Steps and conditions are those of `choices`.
Result<Rehearsals> rehearse_training(const RehearsalOptions& options,
                                     const control::ChosenPlan& chosen,
                                     const control::Predicted& predicted,
                                     control::RehearsalChoices choices,
                                     control::PlanChoices plan_choices,
                                     control::Listener& listener);
std::string print_rehearsals(const Rehearsals& rehearsals);
void add_rehearsals(const Rehearsals& rehearsals, Json& object);

}  // namespace motley::cli
