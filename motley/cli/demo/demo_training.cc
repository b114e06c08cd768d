#include "motley/cli/demo/demo_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/context/progress_printer.h"
#include "motley/cli/options/run_options.h"
#include "motley/control/planning/measuring.h"
#include "motley/report/report.h"
#include "motley/run/launch/programs.h"

namespace motley::cli {
namespace {

/// Relative limits of predictions' errors. A shared machine's speed drifts about as much between
/// measuring and training. Memory counts the allocator's blocks, so only scratch is uncertain.
constexpr double kTimeError = 0.15, kMemoryError = 0.1;
/// An equal split is as fast as three times its slowest device, of speed 0.2. The plan should use
/// 0.8 + 0.4 + 0.2, 2.3 times as much, less the disturbance of devices that share a processor.
constexpr double kSpeedup = 1.5;
/// Timings of each plan, in alternation: the fewest that can contradict each other.
constexpr int kTurns = 2;
/// Compared early: sums in another order differ in the last bit, and training amplifies that.
constexpr std::size_t kComparedSteps = 8;
constexpr double kLossDifference = 1e-4;
/// Limit of last over first loss: the model learns.
constexpr double kLossLeft = 0.9;
constexpr double kExporting = 180;  // seconds
constexpr int kSimulatedSteps = 3;
/// One fewer than by default saves 20 s; a profile that a busy machine spoils is measured again.
constexpr const char* kProfileRounds = "2";

/// Runs python -m motley.export, for which the sources' package would need PYTHONPATH.
constexpr const char* kExport =
    "import runpy, sys\n"
    "package = sys.argv.pop(1)\n"
    "if package: sys.path.insert(0, package)\n"
    "runpy.run_module('motley.export', run_name='__main__', alter_sys=True)";

Result<control::Predicted> predict(const control::ChosenPlan& chosen) {
  return control::predict(chosen.inputs, chosen.planned, *chosen.priced.costs, kSimulatedSteps);
}

/// Returns the worst relative error of predicted peaks. Between stages, late devices hold fewer
/// micro-batches in flight than the simulated step, so there only excess counts.
double largest_memory_error(const control::Measured& measured, const control::Predicted& predicted,
                            const plan::Plan& plan) {
  double worst = 0;
  for (std::size_t r = 0; r < measured.peak_bytes.size(); ++r) {
    const auto peak = static_cast<double>(measured.peak_bytes[r]);
    const double error = predicted.devices[r].peak.value / peak - 1;
    worst = std::max(worst, plan::has_stages(plan) ? -error : std::abs(error));
  }
  return worst;
}

double largest_loss_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < std::min({a.size(), b.size(), kComparedSteps}); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  return worst;
}

}  // namespace

DemoTraining::DemoTraining(const DemoModel& model, const DemoSetting& setting,
                           const Context& context)
    : model_(model), setting_(setting), context_(context) {
  const std::string runs = setting_.directory + "/" + model_.name;
  equal_ = {.title = "equal split", .run_dir = runs + "-equal"};
  plan_ = {.title = "the plan", .run_dir = runs};
  equal_.timings.thing = "the equal split";
  plan_.timings.thing = "the plan";
}

Result<void> DemoTraining::run() {
  MOTLEY_RETURN_IF_ERROR(export_model());
  MOTLEY_RETURN_IF_ERROR(plan_both());
  for (int turn = 0; turn < kTurns; ++turn) {
    MOTLEY_RETURN_IF_ERROR(train_on(equal_, model_.equal_steps));
    MOTLEY_RETURN_IF_ERROR(train_on(plan_, model_.steps));
  }
  prediction_ = judge_prediction(timed(), kTimeError, Profile::kFirst);
  if (prediction_.verdict == Verdict::kProfileAgain) {
    MOTLEY_RETURN_IF_ERROR(profile_again());
    MOTLEY_RETURN_IF_ERROR(train_on(plan_, model_.steps));
    prediction_ = judge_prediction(timed(), kTimeError, Profile::kRenewed);
  }
  context_.note(
      fmt::format("  timings of one thing are apart by {:.0f} % (equal split) and {:.0f} % (the "
                  "plan); others kept {:.1f} of {} processors busy",
                  100 * equal_.timings.apart(), 100 * plan_.timings.apart(), timed().others(),
                  setting_.processors));
  return {};
}

Result<void> DemoTraining::export_model() const {
  context_.note(fmt::format("\n{}: exporting {} and checking it against PyTorch", model_.name,
                            model_.function));
  const auto output = run::run_program(
      setting_.places.python,
      {"-c", kExport, setting_.places.package, setting_.places.examples + "/" + model_.function,
       "-o", fmt::format("{}/{}.motley", setting_.directory, model_.name)},
      kExporting);
  if (!output) return with_context("cannot export " + model_.function, output.error());
  return {};
}

PlanningOptions DemoTraining::planning(const std::string& planner) const {
  PlanningOptions planning;
  planning.model = fmt::format("{}/{}.motley", setting_.directory, model_.name);
  planning.cluster = setting_.directory + "/cluster.toml";
  planning.profiles = setting_.directory + "/profiles.db";
  planning.planner = planner;
  planning.profile_rounds = kProfileRounds;
  planning.global_batch = model_.global_batch;
  planning.recipe.optimizer = model_.optimizer;
  planning.recipe.lr = model_.lr;
  if (model_.momentum > 0) planning.recipe.momentum = model_.momentum;
  return planning;
}

Result<void> DemoTraining::plan_both() {
  for (const auto& [planner, trainee] : {std::pair("equal", &equal_), {"auto", &plan_}}) {
    MOTLEY_ASSIGN(trainee->chosen,
                  choose_plan({planning(planner)}, control::Prices::kAsAsked, context_));
    MOTLEY_ASSIGN(trainee->predicted, predict(*trainee->chosen));
  }
  const control::ChosenPlan& chosen = *plan_.chosen;
  context_.note("\n" + report::print_outcome(*chosen.outcome, chosen.inputs.cluster));
  return {};
}

/// A first run begins anew; a later one continues from its checkpoint.
Result<void> DemoTraining::train_on(Trainee& trainee, std::int64_t steps) {
  const std::vector<double>& done = trainee.measured.losses;
  const control::ChosenPlan& chosen = *trainee.chosen;
  control::TrainChoices choices;
  choices.data.path = setting_.places.examples + "/" + model_.data;
  choices.data.seq = model_.seq;
  choices.steps = static_cast<std::int64_t>(done.size()) + steps;
  choices.run_dir = trainee.run_dir;
  choices.resume = !done.empty();
  MOTLEY_ASSIGN(const control::PreparedRun prepared,
                control::prepare_run(chosen.inputs, chosen.planned, &trainee.predicted, choices));
  const ProcessorTime begin = setting_.processor_time();
  MOTLEY_ASSIGN(trainee.measured, train(prepared, context_));
  if (trainee.measured.stopped) return runtime_error("run.interrupted", "interrupted");
  trainee.timings.steps.push_back(trainee.measured.step);
  trainee.timings.others =
      std::max(trainee.timings.others, others_between(begin, setting_.processor_time()));
  trainee.memory_error =
      std::max(trainee.memory_error,
               largest_memory_error(trainee.measured, trainee.predicted, chosen.planned.plan));
  note_run(trainee);
  return {};
}

void DemoTraining::note_run(const Trainee& trainee) const {
  std::string busy;
  const std::vector<plan::Member> members = plan::members(trainee.chosen->planned.plan);
  const cluster::Cluster& cluster = trainee.chosen->inputs.cluster;
  for (std::size_t r = 0; r < trainee.measured.busy.size(); ++r)
    busy += fmt::format("  {} {:>3.0f}%", cluster.device(members[r].device).name,
                        100 * trainee.measured.busy[r]);
  context_.note(fmt::format("  {:<12} {:>9} a step (predicted {}), busy{}", trainee.title,
                            format_seconds(trainee.measured.step),
                            format_seconds(trainee.predicted.seconds()), busy));
}

Result<void> DemoTraining::profile_again() {
  is_profiled_again_ = true;
  context_.note(fmt::format(
      "  two timings of the plan are apart by {:.0f} %, and {:.0f} % from the prediction: "
      "measuring again what it rests on",
      100 * plan_.timings.apart(), 100 * prediction_.value));
  MOTLEY_ASSIGN(const control::PriceChoices choices,
                make_price_choices(planning("auto"), context_));
  std::error_code code;
  std::filesystem::remove(choices.profiles, code);
  ProgressPrinter printer(context_);
  control::ChosenPlan& chosen = *plan_.chosen;
  MOTLEY_ASSIGN(chosen.priced, control::price(chosen.inputs, choices, printer.outside()));
  MOTLEY_ASSIGN(cost::ProfileStore store, control::open_store(choices.profiles));
  MOTLEY_RETURN_IF_ERROR(control::measure_plan(chosen.inputs, chosen.planned.program,
                                               *chosen.priced.costs, choices.rounds, store,
                                               printer.outside()));
  MOTLEY_ASSIGN(chosen.priced, control::price(chosen.inputs, choices, printer.outside()));
  MOTLEY_ASSIGN(plan_.predicted, predict(chosen));
  return {};
}

std::vector<DemoCheck> DemoTraining::checks() const {
  using Wanted = DemoCheck::Wanted;
  const Judged quicker = judge_speedup(timed(), kSpeedup, kTimeError);
  const auto noise = [&](const Judged& judged, const char* what) {
    return judged.verdict == Verdict::kNoise ? print_noise(timed(), kTimeError, what)
                                             : std::string();
  };
  const std::vector<double>& losses = plan_.measured.losses;
  const auto named = [&](const char* what) { return model_.name + ": " + what; };
  return {
      {named("faster than the equal split (times)"), quicker.value, quicker.allowed,
       Wanted::kAtLeast, noise(quicker, "the gain")},
      {named("error of the predicted step time"), prediction_.value, prediction_.allowed,
       Wanted::kAtMost, noise(prediction_, "the prediction")},
      {named("first losses under both splits, relative difference"),
       largest_loss_difference(losses, equal_.measured.losses), kLossDifference, Wanted::kAtMost},
      {named("last loss over first loss"), losses.back() / losses.front(), kLossLeft,
       Wanted::kAtMost},
      {named("error of the predicted peak memory, worst device"), plan_.memory_error, kMemoryError,
       Wanted::kAtMost}};
}

Json DemoTraining::timings_to_json() const {
  const auto seconds = [](const Trainee& trainee) {
    Json list = Json::array();
    for (const Seconds step : trainee.timings.steps) list.push_back(step.value);
    return list;
  };
  return {{"model", model_.name},
          {"equal_split_s", seconds(equal_)},
          {"plan_s", seconds(plan_)},
          {"predicted_s", plan_.predicted.seconds().value},
          {"noise", timed().noisiest().apart()},
          {"others", timed().others()},
          {"profiled_again", is_profiled_again_}};
}

}  // namespace motley::cli
