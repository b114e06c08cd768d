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

struct DemoModel {
  std::string name;
  std::string function;  ///< "digits_cnn.py:model", in the folder of examples
  std::string data;      ///< likewise
  std::int64_t seq = 0;  ///< window length of flat tokens
  std::int64_t global_batch = 0;
  std::int64_t equal_steps = 0, steps = 0;  ///< per run of either plan; the first step is not timed
  std::string optimizer;
  double lr = 0, momentum = 0;
};

struct DemoSetting {
  DemoPlaces places;
  std::string directory;
  int processors = 1;
  std::function<ProcessorTime()> processor_time = read_processor_time;
};

struct DemoCheck {
  enum class Wanted { kAtMost, kAtLeast };
  std::string name;
  double value, limit;
  Wanted wanted;
  std::string noise = "";  ///< why it is undecidable, in words; "": it is not

  bool is_met() const { return wanted == Wanted::kAtMost ? value <= limit : value >= limit; }
  bool pass() const { return is_met() || !noise.empty(); }
};

/// One of a model's two plans, with its training results.
struct Trainee {
  std::string title, run_dir;
  std::unique_ptr<control::ChosenPlan> chosen = nullptr;
  control::Predicted predicted = {};
  Timings timings = {};
  control::Measured measured = {};
  double memory_error = 0;  ///< relative error of predicted peaks, on the worst device and run
};

/// The demo of one model: exports it, plans, trains by the equal split and by the plan in
/// alternation, each run continuing the one before, and judges the timings (demo_checks.h).
class DemoTraining {
 public:
  /// Uses the setting's folder, which has cluster.toml. All arguments outlive it.
  DemoTraining(const DemoModel& model, const DemoSetting& setting, const Context& context);

  /// Runs the whole demo with notes. Measures the profile again if it may be wrong.
  Result<void> run();

  double speedup() const { return equal_.timings.typical() / plan_.timings.typical(); }
  double prediction_error() const { return prediction_.value; }
  std::vector<DemoCheck> checks() const;
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
