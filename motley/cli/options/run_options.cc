#include "motley/cli/options/run_options.h"

#include <fmt/format.h>

#include <filesystem>

#include "motley/base/text.h"
#include "motley/cli/context/progress_printer.h"

namespace motley::cli {
namespace {

constexpr const char* kEvaluationGroup = "Evaluation";
constexpr const char* kDataGroup = "Data";
constexpr std::int64_t kMostLoaders = 1024;

Result<void> check_data(const RunOptions& options) {
  const data::DataSource& source = options.training.data;
  if (source.path.empty() && !options.prepare)  // else a script has them
    return usage_error("cli.data",
                       "no training data: give --data FILE (.npz, .npy, .safetensors, .parquet, "
                       ".arrow, flat tokens) or python:FILE.py:FUNCTION");
  const int loaders = source.loading.processes;
  if (loaders >= 0 && loaders <= kMostLoaders) return {};
  return usage_error("cli.loaders",
                     fmt::format("--loaders: found {}, wanted 0 to {}", loaders, kMostLoaders));
}

Result<void> take_shuffle(const std::string& text, std::optional<std::uint64_t>& shuffle) {
  const auto seed = find_integer(text);
  shuffle.reset();
  if (text == "none") return {};
  if (!seed || *seed < 0)
    return usage_error("cli.shuffle",
                       fmt::format("--shuffle: found '{}', wanted none or a seed from 0 on", text));
  shuffle = static_cast<std::uint64_t>(*seed);
  return {};
}

/// Keeps warm-up and length.
Result<void> take_schedule(const std::string& text, run::Schedule& schedule) {
  MOTLEY_ASSIGN(run::Schedule read, run::parse_schedule(text));
  read.warmup = schedule.warmup;
  read.steps = schedule.steps;
  schedule = std::move(read);
  return {};
}

Result<std::optional<control::EvaluationChoices>> make_evaluation_choices(
    const RunOptions& options, const data::DataSource& training) {
  control::EvaluationChoices choices = options.evaluation;
  if (choices.samples != 0 && (!options.prepare || choices.samples < 0))
    return usage_error("cli.evaluation",
                       "--eval-samples: wanted a number above 0, with --prepare; a run that is not "
                       "a script's wants --eval-data FILE");
  if (choices.samples > 0)
    return std::optional(control::EvaluationChoices{.data = {}, .samples = choices.samples});
  if (options.eval_data.empty()) {
    if (choices.every > 0 || choices.patience > 0)
      return usage_error("cli.evaluation",
                         "--eval-every and --patience want --eval-data FILE to evaluate on");
    return std::optional<control::EvaluationChoices>();
  }
  if (choices.every < 0 || choices.patience < 0)
    return usage_error("cli.evaluation", "--eval-every, --patience: wanted a number from 0 on");
  if (choices.patience > 0 && choices.every == 0)
    return usage_error("cli.evaluation", "--patience wants --eval-every N");
  choices.data = training;
  MOTLEY_RETURN_IF_ERROR(data::parse_data_path(options.eval_data, choices.data));
  return std::optional(std::move(choices));
}

std::vector<Flag> data_flags(RunOptions& o) {
  control::TrainChoices& t = o.training;
  data::DataSource& data = t.data;
  return {
      {"--data",
       Flag::Text{"", [&](const std::string& text) { return data::parse_data_path(text, data); }},
       "training data: .npz, .npy, .safetensors, .parquet, .arrow, flat tokens, a folder of .npy, "
       "or python:FILE.py:FUNCTION, which returns a dataset",
       Flag::Default::kHidden, kDataGroup},
      {"--shuffle",
       Flag::Text{"none", [&](const std::string& text) { return take_shuffle(text, t.shuffle); }},
       "none, or a seed", kShown, kDataGroup},
      {"--tokens", one_of("cli.tokens", "--tokens", data.token_width, {{"u16", 2}, {"u32", 4}}),
       "integer type of flat tokens: u16 or u32", kShown, kDataGroup},
      {"--seq", &data.seq, "sequence length of flat tokens", Flag::Default::kHidden, kDataGroup},
      {"--pad",
       Flag::Text{"",
                  [&](const std::string& text) -> Result<void> {
                    MOTLEY_ASSIGN(data.loading.pads, data::parse_pads(text));
                    return {};
                  }},
       "fills loaded samples that are shorter than the model's inputs: a number, or "
       "INPUT=NUMBER,...",
       Flag::Default::kHidden, kDataGroup},
      {"--loaders", &data.loading.processes,
       "loader processes per host for Python data sets; 0: the cores that devices leave", kShown,
       kDataGroup},
      {"--python", &o.python,
       "interpreter with PyTorch and motley (default: MOTLEY_PYTHON, or python3)",
       Flag::Default::kHidden, kDataGroup}};
}

}  // namespace

std::vector<Flag> training_flags(RunOptions& o) {
  control::TrainChoices& t = o.training;
  std::vector<Flag> flags = planning_flags(o.plan.planning);
  for (Flag& flag : data_flags(o)) flags.push_back(std::move(flag));
  flags.insert(
      flags.end(),
      {{"--steps", &t.steps, "stop after this many steps in total"},
       {"--epochs", &t.epochs, "or after this many passes over the samples"},
       {"--schedule",
        Flag::Text{"constant",
                   [&](const std::string& text) { return take_schedule(text, t.schedule); }},
        "of the learning rate: constant, linear[:FLOOR], cosine[:FLOOR], step:EVERY[:GAMMA], "
        "one-cycle, or a file with a factor a line",
        kShown, kRecipeGroup},
       {"--warmup", &t.schedule.warmup, "steps in which the learning rate rises from 0", kShown,
        kRecipeGroup},
       {"--schedule-steps", &t.schedule.steps,
        "steps of the learning-rate schedule (default: --steps)", Flag::Default::kHidden,
        kRecipeGroup},
       {"--run-dir", &t.run_dir, "run directory (default: runs/MODEL)"},
       {"--timeout", &t.timeout.value, "seconds to wait for a peer", kShown},
       {"--transport",
        one_of<std::string>("cli.transport", "--transport", t.transport,
                            {{"auto", "auto"}, {"gloo", "gloo"}}),
        "auto: shared memory within a machine, else Gloo; gloo: always Gloo", kShown},
       {"--enforce",
        one_of("cli.enforce", "--enforce", t.enforce,
               {{"worker", control::Enforce::kSpeedsAndLinks},
                {"speeds", control::Enforce::kSpeeds},
                {"outside", control::Enforce::kNothing}}),
        "limits of emulated devices: worker (speed and links), speeds (links are limited outside, "
        "by tc) or outside (speeds too, by cgroup quotas)",
        kShown},
       {"--trace-steps", &t.trace_steps, "number of last steps to keep as a trace", kShown}});
  put_under("Workers", {"--timeout", "--transport", "--enforce", "--trace-steps"}, flags);
  return flags;
}

std::vector<Flag> evaluation_flags(RunOptions& o) {
  return {
      {"--eval-data", &o.eval_data, "samples to evaluate on, in the forms of --data",
       Flag::Default::kHidden, kEvaluationGroup},
      {"--eval-every", &o.evaluation.every, "steps between evaluations; 0: at the end", kShown,
       kEvaluationGroup},
      {"--best", &o.evaluation.watch,
       "metric of the best model: loss, or one such as accuracy or accuracy:max", kShown,
       kEvaluationGroup},
      {"--patience", &o.evaluation.patience,
       "stop after this many evaluations without improvement; 0: never", kShown, kEvaluationGroup},
      {"--serve", &o.serve,
       "port on 127.0.0.1 of a page that follows the run (default: any free port)"}};
}

std::string find_python(const std::string& given, const Context& context) {
  if (!given.empty()) return given;
  const auto found = context.environment.find("MOTLEY_PYTHON");
  return found == context.environment.end() ? "python3" : found->second;
}

Result<control::TrainChoices> make_train_choices(const RunOptions& options,
                                                 const std::string& python) {
  control::TrainChoices choices = options.training;
  MOTLEY_RETURN_IF_ERROR(check_data(options));
  choices.data.loading.python = python;
  choices.data.loading.seed = choices.seed = options.plan.planning.seed;
  if (choices.steps < 1 && !(choices.epochs > 0) && !options.prepare)
    return usage_error("cli.steps", "how long? give --steps N with N >= 1, or --epochs X");
  if (choices.steps > 0 && choices.epochs > 0)
    return usage_error("cli.steps", "--steps and --epochs: give one of them");
  if (choices.schedule.steps <= 0) choices.schedule.steps = choices.steps;
  if (choices.steps > 0)
    MOTLEY_RETURN_IF_ERROR(run::verify_schedule(choices.schedule, choices.steps));
  MOTLEY_ASSIGN(choices.evaluation, make_evaluation_choices(options, choices.data));
  if (!(choices.timeout.value > 0))
    return usage_error("cli.timeout", "--timeout: wanted a number of seconds above 0");
  return choices;
}

std::string default_run_dir(const std::string& model_path) {
  return "runs/" + std::filesystem::path(model_path).stem().string();
}

Result<control::Measured> train(const control::PreparedRun& prepared, const Context& context) {
  ProgressPrinter printer(context);
  return control::train(prepared, printer.outside());
}

}  // namespace motley::cli
