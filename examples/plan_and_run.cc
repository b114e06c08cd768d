// Plans, predicts, runs and watches a training from C++, without the command line:
//   build/plan_and_run build/motley-worker MODEL.motley CLUSTER.toml DATA PROFILES.db RUN-DIR
#include <cstdio>

#include "motley/control/planning/chosen_plan.h"
#include "motley/control/survey/local_workers.h"
#include "motley/control/training/training.h"

using namespace motley;

/// Says what happens, and stops the run after 20 steps.
struct Watcher : control::SilentListener {
  void note(const std::string& line) override { std::printf("%s\n", line.c_str()); }
  control::Wish step(const control::StepReport& report) override {
    std::printf("step %d: loss %.4f\n", static_cast<int>(report.step), report.logged.loss);
    return report.step == 19 ? control::Wish::kStop : control::Wish::kGoOn;
  }
};

Result<void> plan_and_run(char** word, const control::Outside& outside) {
  const control::Question question{.model = word[2], .cluster = word[3], .global_batch = 60};
  MOTLEY_ASSIGN(const auto plan,
                control::choose_plan(question, {.prices = {.profiles = word[5]}}, outside));
  MOTLEY_ASSIGN(const auto predicted,
                control::predict(plan->inputs, plan->planned, *plan->priced.costs, 1));
  control::TrainChoices choices;
  choices.data = {word[4]};
  choices.steps = 100;
  choices.run_dir = word[6];
  MOTLEY_ASSIGN(const auto prepared,
                control::prepare_run(plan->inputs, plan->planned, &predicted, choices));
  MOTLEY_ASSIGN(const auto measured, control::train(prepared, outside));
  std::printf("predicted %.3f ms a step, took %.3f ms\n", 1e3 * predicted.step.value,
              1e3 * measured.step.value);
  return {};
}

int main(int count, char** word) {
  if (count != 7) return 2;
  control::LocalWorkers workers(word[1]);
  const control::SystemClock clock;
  Watcher watcher;
  const auto done = plan_and_run(word, {workers, clock, watcher});
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
