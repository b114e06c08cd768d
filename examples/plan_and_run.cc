// Plans, predicts, runs and watches a training from C++, without the command line:
//   build/plan_and_run build/motley-worker MODEL.motley CLUSTER.toml DATA PROFILES.db RUN-DIR
#include <cstdio>

#include "motley/control/local_workers.h"
#include "motley/control/training.h"

namespace {

/// Says what happens, and stops the run after 20 steps.
struct Watcher : motley::control::SilentListener {
  void note(const std::string& line) override { std::printf("%s\n", line.c_str()); }
  motley::control::Wish step(const motley::control::StepReport& report) override {
    std::printf("step %d: loss %.4f\n", static_cast<int>(report.step), report.logged.loss);
    return report.step == 19 ? motley::control::Wish::kStop : motley::control::Wish::kGoOn;
  }
};

motley::Result<void> plan_and_run(char** arguments) {
  using namespace motley;
  control::LocalWorkers workers(arguments[1]);
  const control::SystemClock clock;
  Watcher watcher;
  const control::Outside outside{workers, clock, watcher};
  MOTLEY_ASSIGN(const auto inputs,
                control::read_inputs(
                    {.model = arguments[2], .cluster = arguments[3], .global_batch = 60}, watcher));
  MOTLEY_ASSIGN(const auto answer,
                control::find_plan(inputs, {.prices = {.profiles = arguments[5]}}, outside));
  if (!answer.planned) return tl::make_unexpected(control::infeasible_error(answer.outcome));
  MOTLEY_ASSIGN(const auto predicted,
                control::predict(inputs, *answer.planned, *answer.priced.costs, 1));
  MOTLEY_ASSIGN(
      const auto prepared,
      control::prepare_run(inputs, *answer.planned, &predicted,
                           {.data = {arguments[4]}, .steps = 100, .run_dir = arguments[6]}));
  MOTLEY_ASSIGN(const auto measured, control::train(prepared, outside));
  std::printf("predicted %.3f ms a step, took %.3f ms\n", 1e3 * predicted.step.value,
              1e3 * measured.step.value);
  return {};
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 7) return 2;
  const auto done = plan_and_run(arguments);
  if (!done) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done ? 0 : 1;
}
