#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/cli/demo/demo_checks.h"
#include "motley/cli/demo/demo_places.h"
#include "motley/cli/demo/processor_time.h"
#include "motley/cli/options/planning_options.h"
#include "motley/control/planning/prediction.h"
#include "motley/control/training/monitor.h"

namespace motley::cli {

/// What the demo trains.
struct DemoModel {
  std::string name;      ///< of its files
  std::string function;  ///< "digits_cnn.py:model", in the folder of examples
  std::string data;      ///< likewise
  std::int64_t seq = 0;  ///< window length of flat tokens
  std::int64_t global_batch = 0;
  std::int64_t equal_steps = 0, steps = 0;  ///< of each turn by either plan; the first is not timed
  std::string optimizer;
  double lr = 0, momentum = 0;
};

/// Where the demo runs.
struct DemoSetting {
  DemoPlaces places;
  std::string directory;  ///< where all is written
  int processors = 1;     ///< that it may use
  std::function<ProcessorTime()> processor_time = read_processor_time;
};

/// A check of the demo.
struct DemoCheck {
  enum class Wanted { kAtMost, kAtLeast };
  std::string name;
  double value, limit;
  Wanted wanted;
  std::string noise = "";  ///< why nothing can be said of it, in words; "": it can

  bool is_met() const { return wanted == Wanted::kAtMost ? value <= limit : value >= limit; }
  bool pass() const { return is_met() || !noise.empty(); }
};

/// One of a model's two plans, and what came of training by it.
struct Trainee {
  std::string title, run_dir;
  std::unique_ptr<control::ChosenPlan> chosen = nullptr;
  control::Predicted predicted = {};
  Timings timings = {};
  control::Measured measured = {};  ///< in the last run, with the losses of all
  double memory_error = 0;          ///< of the predicted peaks, relative: the worst device and run
};

/// A model's way through the demo: exported, planned, trained by the equal split and by the plan in
/// turns, each run going on from the one before, and judged (demo_checks.h).
class DemoTraining {
 public:
  /// In the setting's folder, which has cluster.toml. All outlive it.
  DemoTraining(const DemoModel& model, const DemoSetting& setting, const Context& context);

  /// Does all of it, and tells how it goes. The profile is measured again where that may be what
  /// is wrong.
  Result<void> run();

  double speedup() const { return equal_.timings.typical() / plan_.timings.typical(); }
  double prediction_error() const { return prediction_.value; }
  std::vector<DemoCheck> checks() const;
  /// {"model", "equal_split_s", "plan_s", "predicted_s", "noise", "others", "profiled_again"}
  Json timings_to_json() const;

 private:
  Result<void> export_model() const;
  Result<void> plan_both();
  Result<void> train_on(Trainee& trainee, std::int64_t steps);
  Result<void> profile_again();
  void note_run(const Trainee& trainee) const;
  PlanningOptions planning(const std::string& planner) const;
  TimedInTurns timed() const {
    return {equal_.timings, plan_.timings, plan_.predicted.seconds(),
            spare_processors(setting_.processors)};
  }

  const DemoModel& model_;
  const DemoSetting& setting_;
  const Context& context_;
  Trainee equal_, plan_;
  Judged prediction_{};
  bool is_profiled_again_ = false;
};

}  // namespace motley::cli
