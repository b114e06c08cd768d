#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/run_options.h"
#include "motley/report/report.h"
#include "motley/run/launcher.h"

namespace motley::cli {
namespace {

struct DemoOptions {
  std::string python, examples;
  std::string directory = "motley-demo";
};

std::vector<Flag> demo_flags(DemoOptions& options) {
  return {{"--python", &options.python,
           "interpreter with PyTorch (default: MOTLEY_PYTHON, else python3)"},
          {"--examples", &options.examples,
           "folder of examples (default: examples, or those that were installed with motley)"},
          {"--directory", &options.directory, "where to write", kShown}};
}

/// Three unequal devices, emulated on this machine's CPU.
constexpr const char* kCluster = R"(schema = "motley.cluster/1"
name = "demo"

[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  speed = 0.8

[[node]]
name = "b"
  [[node.device]]
  kind = "cpu"
  speed = 0.4

[[node]]
name = "c"
  [[node.device]]
  kind = "cpu"
  speed = 0.2
  memory = "96MiB"
)";

/// Of predictions, relative. Step times: a shared machine drifts by about as much between measuring
/// and training. Memory: what the allocator hands out is counted, so only scratch is unknown.
constexpr double kTimeError = 0.15, kMemoryError = 0.1;

struct DemoModel {
  std::string name, function, data;
  std::int64_t seq, global_batch, equal_steps, steps;
  std::string optimizer;
  double lr, momentum;
};

const std::vector<DemoModel> kModels = {
    {"digits_cnn", "digits_cnn.py:model", "data/digits.npz", 0, 280, 20, 60, "sgd", 0.05, 0.9},
    {"char_gpt", "char_gpt.py:model", "data/devils_dictionary.bin", 64, 56, 10, 20, "adamw", 0.003,
     0},
};

struct Check {
  std::string name;
  double value, limit;
  bool at_most;  ///< value <= limit passes; else value >= limit
  bool pass() const { return at_most ? value <= limit : value >= limit; }
};

/// What one model's two trainings gave.
struct DemoResult {
  double speedup = 0, prediction_error = 0;
  std::vector<Check> checks;
};

Result<void> export_model(const DemoModel& model, const DemoOptions& options,
                          const std::string& path) {
  const auto output = run::run_program(
      options.python, {"-m", "motley.export", options.examples + "/" + model.function, "-o", path},
      180);
  if (!output) return with_context("cannot export " + model.function, output.error());
  return {};
}

PlanningOptions planning_options(const DemoModel& model, const std::string& directory,
                                 const std::string& planner) {
  PlanningOptions planning;
  planning.model = fmt::format("{}/{}.motley", directory, model.name);
  planning.cluster = directory + "/cluster.toml";
  planning.profiles = directory + "/profiles.db";
  planning.planner = planner;
  planning.global_batch = model.global_batch;
  planning.recipe.optimizer = model.optimizer;
  planning.recipe.lr = model.lr;
  if (model.momentum > 0) planning.recipe.momentum = model.momentum;
  return planning;
}

struct DemoRun {
  control::Measured measured;
  Seconds predicted;
  double memory_error;  ///< of the predicted peaks, relative, of the worst device
};

double largest_memory_error(const control::Measured& measured,
                            const control::Predicted& predicted) {
  double worst = 0;
  for (std::size_t r = 0; r < measured.peak_bytes.size(); ++r)
    worst = std::max(worst, std::abs(predicted.devices[r].peak.value /
                                         static_cast<double>(measured.peak_bytes[r]) -
                                     1));
  return worst;
}

Result<DemoRun> run_model(const DemoModel& model, const DemoOptions& options,
                          const control::ChosenPlan& plan, std::int64_t steps,
                          const std::string& run_dir, const Context& context) {
  control::TrainChoices choices;
  choices.data.path = options.examples + "/" + model.data;
  choices.data.seq = model.seq;
  choices.steps = steps;
  choices.run_dir = run_dir;
  choices.resume = control::TrainChoices::Resume::kNever;
  MOTLEY_ASSIGN(const control::Predicted predicted,
                control::predict(plan.inputs, plan.planned, *plan.priced.costs, 3));
  MOTLEY_ASSIGN(const control::PreparedRun prepared,
                control::prepare_run(plan.inputs, plan.planned, &predicted, choices));
  MOTLEY_ASSIGN(control::Measured measured, train(prepared, context));
  const double memory_error = largest_memory_error(measured, predicted);
  return DemoRun{std::move(measured), predicted.seconds(), memory_error};
}

/// Sums in another order differ in the last bit, and training amplifies that: compared early.
constexpr std::size_t kComparedSteps = 8;

double largest_loss_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < std::min({a.size(), b.size(), kComparedSteps}); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

void print_run(const Context& context, const std::string& title, const DemoRun& run,
               const control::ChosenPlan& plan) {
  std::string busy;
  const std::vector<plan::Member> members = plan::members(plan.planned.plan);
  for (std::size_t r = 0; r < run.measured.busy.size(); ++r)
    busy += fmt::format("  {} {:>3.0f}%", plan.inputs.cluster.device(members[r].device).name,
                        100 * run.measured.busy[r]);
  context.note(fmt::format("  {:<12} {:>9} a step (predicted {}), busy{}", title,
                           format_seconds(run.measured.step), format_seconds(run.predicted), busy));
}

Result<DemoResult> demo_model(const DemoModel& model, const DemoOptions& options,
                              const std::string& directory, const Context& context) {
  const std::string path = fmt::format("{}/{}.motley", directory, model.name);
  context.note(fmt::format("\n{}: exporting {} and checking it against PyTorch", model.name,
                           model.function));
  MOTLEY_RETURN_IF_ERROR(export_model(model, options, path));
  const auto plan_with = [&](const char* planner) {
    return choose_plan({planning_options(model, directory, planner)}, control::Prices::kAsAsked,
                       context);
  };
  MOTLEY_ASSIGN(const auto equal, plan_with("equal"));
  MOTLEY_ASSIGN(const auto best, plan_with("auto"));
  context.note("\n" + report::print_outcome(*best->outcome, best->inputs.cluster));

  const std::string runs = directory + "/" + model.name;
  MOTLEY_ASSIGN(const DemoRun before,
                run_model(model, options, *equal, model.equal_steps, runs + "-equal", context));
  print_run(context, "equal split", before, *equal);
  MOTLEY_ASSIGN(const DemoRun after, run_model(model, options, *best, model.steps, runs, context));
  print_run(context, "the plan", after, *best);

  DemoResult result;
  result.speedup = before.measured.step / after.measured.step;
  result.prediction_error = std::abs(after.predicted / after.measured.step - 1);
  result.checks = {
      {model.name + ": faster than the equal split (times)", result.speedup, 1.5, false},
      {model.name + ": error of the predicted step time", result.prediction_error, kTimeError,
       true},
      {model.name + ": first losses under both splits, relative difference",
       largest_loss_difference(after.measured.losses, before.measured.losses), 1e-4, true},
      {model.name + ": last loss over first loss",
       after.measured.losses.back() / after.measured.losses.front(), 0.9, true},
      {model.name + ": error of the predicted peak memory, worst device", after.memory_error,
       kMemoryError, true}};
  return result;
}

std::string print_checks(const std::vector<Check>& checks) {
  std::string text;
  for (const Check& check : checks)
    text +=
        fmt::format("  {}  {:<58} {:>9.3g}  {} {:g}\n", check.pass() ? "pass" : "FAIL", check.name,
                    check.value, check.at_most ? "at most" : "at least", check.limit);
  return text;
}

/// As a package, whose folder it lies in with what belongs to it (CMakeLists.txt).
bool is_installed(const Context& context) {
  return std::filesystem::path(context.program).parent_path().filename() == "bin";
}

/// What was not said: where this program finds it.
DemoOptions with_defaults(DemoOptions options, const Context& context) {
  namespace fs = std::filesystem;
  options.python = find_python(options.python, context);
  if (!options.examples.empty()) return options;
  const fs::path installed = fs::path(context.program).parent_path().parent_path() / "examples";
  std::error_code code;
  options.examples = fs::exists("examples", code) ? "examples" : installed.string();
  return options;
}

Result<int> show_demo(const DemoOptions& given, const Context& context) {
  const DemoOptions options = with_defaults(given, context);
  MOTLEY_RETURN_IF_ERROR(context.workers->torch_version());
  context.note(
      "Three emulated devices on this machine's CPU: a:0 gets 0.8 of a core, b:0 0.4, c:0 "
      "0.2 and 96 MiB.\nTwo models are trained, first with an equal split, then with the "
      "split Motley finds. About two minutes.");
  const Seconds start = context.clock->steady();
  std::error_code code;
  std::filesystem::create_directories(options.directory, code);
  MOTLEY_RETURN_IF_ERROR(write_file_atomic(options.directory + "/cluster.toml", kCluster));
  std::vector<Check> checks;
  double speedup = 0, error = 0;
  for (const DemoModel& model : kModels) {
    MOTLEY_ASSIGN(const DemoResult result, demo_model(model, options, options.directory, context));
    checks.insert(checks.end(), result.checks.begin(), result.checks.end());
    speedup = speedup == 0 ? result.speedup : std::min(speedup, result.speedup);
    error = std::max(error, result.prediction_error);
  }
  Json object = {{"checks", Json::array()},
                 {"speedup_vs_equal_split", speedup},
                 {"prediction_error", error},
                 {"elapsed_s", (context.clock->steady() - start).value},
                 {"run_dir", options.directory}};
  bool pass = true;
  for (const Check& check : checks) {
    object["checks"].push_back({{"name", check.name},
                                {"value", check.value},
                                {"limit", check.limit},
                                {"pass", check.pass()}});
    pass = pass && check.pass();
  }
  context.result(
      fmt::format(
          "\n{}\n  {} in {}. See what happened: {} report {}/char_gpt\n"
          "  For your own model: python -m motley.export FILE.py:FUNCTION -o MODEL.motley\n",
          print_checks(checks), pass ? "All checks passed" : "CHECKS FAILED",
          format_seconds(context.clock->steady() - start),
          is_installed(context) ? "motley" : "build/motley", options.directory),
      object);
  return pass ? kDone : kCheckFailed;
}

}  // namespace

Verb demo_verb() {
  return make_verb("demo", "two models on three emulated devices, checked", demo_flags, show_demo);
}

}  // namespace motley::cli
