#include "motley/cli/run_options.h"

#include <fmt/format.h>

#include <filesystem>

#include "motley/base/text.h"
#include "motley/cli/teller.h"

namespace motley::cli {
namespace {

constexpr const char* kEvaluationGroup = "Evaluation";
constexpr const char* kDataGroup = "Data";
constexpr std::int64_t kMostLoaders = 1024;

Result<data::DataSource> make_data_source(const RunOptions& options, const std::string& python) {
  if (options.data.empty() && options.prepare) return data::DataSource{};  // a script has them
  if (options.data.empty())
    return usage_error("cli.data",
                       "no training data: give --data FILE (.npz, .npy, .safetensors, .parquet, "
                       ".arrow, flat tokens) or python:FILE.py:FUNCTION");
  data::DataSource source;
  source.loading.python = python;
  if (options.loaders < 0 || options.loaders > kMostLoaders)
    return usage_error("cli.loaders", fmt::format("--loaders: found {}, wanted 0 to {}",
                                                  options.loaders, kMostLoaders));
  source.loading.processes = static_cast<int>(options.loaders);
  source.loading.seed = options.plan.planning.seed;
  if (!options.pad.empty()) {
    MOTLEY_ASSIGN(source.loading.pads, data::parse_pads(options.pad));
  }
  MOTLEY_RETURN_IF_ERROR(data::parse_data_path(options.data, source));
  source.seq = options.seq;
  if (options.tokens != "u16" && options.tokens != "u32")
    return usage_error("cli.tokens",
                       fmt::format("--tokens: found '{}', wanted u16 or u32", options.tokens));
  source.token_width = options.tokens == "u16" ? 2 : 4;
  return source;
}

Result<std::optional<std::uint64_t>> parse_shuffle(const std::string& text) {
  if (text == "none") return std::optional<std::uint64_t>{};
  const auto seed = find_integer(text);
  if (!seed || *seed < 0)
    return usage_error("cli.shuffle",
                       fmt::format("--shuffle: found '{}', wanted none or a seed from 0 on", text));
  return std::optional<std::uint64_t>(static_cast<std::uint64_t>(*seed));
}

Result<control::TrainChoices::Resume> parse_resume(const std::string& text) {
  if (text == "auto") return control::TrainChoices::Resume::kAuto;
  if (text == "never") return control::TrainChoices::Resume::kNever;
  return usage_error("cli.resume", fmt::format("--resume: found '{}', wanted auto or never", text));
}

Result<control::Enforce> parse_enforce(const std::string& text) {
  if (text == "worker") return control::Enforce::kSpeedsAndLinks;
  if (text == "speeds") return control::Enforce::kSpeeds;
  if (text == "outside") return control::Enforce::kNothing;
  return usage_error("cli.enforce",
                     fmt::format("--enforce: found '{}', wanted worker, speeds or outside", text));
}

Result<std::optional<control::EvaluationChoices>> make_evaluation_choices(
    const RunOptions& options, const data::DataSource& training) {
  if (options.eval_samples != 0 && (!options.prepare || options.eval_samples < 0))
    return usage_error("cli.evaluation",
                       "--eval-samples: wanted a number above 0, with --prepare; a run that is not "
                       "a script's wants --eval-data FILE");
  if (options.eval_samples > 0)
    return std::optional(control::EvaluationChoices{.data = {}, .samples = options.eval_samples});
  if (options.eval_data.empty()) {
    if (options.eval_every > 0 || options.patience > 0)
      return usage_error("cli.evaluation",
                         "--eval-every and --patience want --eval-data FILE to evaluate on");
    return std::optional<control::EvaluationChoices>();
  }
  if (options.eval_every < 0 || options.patience < 0)
    return usage_error("cli.evaluation", "--eval-every, --patience: wanted a number from 0 on");
  if (options.patience > 0 && options.eval_every == 0)
    return usage_error("cli.evaluation", "--patience wants --eval-every N");
  control::EvaluationChoices choices{.data = training,
                                     .every = options.eval_every,
                                     .watch = options.best,
                                     .patience = options.patience};
  MOTLEY_RETURN_IF_ERROR(data::parse_data_path(options.eval_data, choices.data));
  return std::optional(std::move(choices));
}

}  // namespace

std::vector<Flag> training_flags(RunOptions& o) {
  std::vector<Flag> flags = planning_flags(o.plan.planning);
  flags.insert(
      flags.end(),
      {{"--data", &o.data,
        "training data: .npz, .npy, .safetensors, .parquet, .arrow, flat tokens, a folder of .npy, "
        "or python:FILE.py:FUNCTION, which returns a dataset",
        Flag::Default::kHidden, kDataGroup},
       {"--shuffle", &o.shuffle, "none, or a seed", kShown, kDataGroup},
       {"--tokens", &o.tokens, "width of a flat token: u16 or u32", kShown, kDataGroup},
       {"--seq", &o.seq, "window length of flat tokens", Flag::Default::kHidden, kDataGroup},
       {"--pad", &o.pad,
        "fills loaded samples that are shorter than the model's inputs: a number, or "
        "INPUT=NUMBER,...",
        Flag::Default::kHidden, kDataGroup},
       {"--loaders", &o.loaders,
        "processes a host that load samples by Python; 0: the cores that devices leave", kShown,
        kDataGroup},
       {"--python", &o.python,
        "interpreter with PyTorch and motley (default: MOTLEY_PYTHON, or python3)",
        Flag::Default::kHidden, kDataGroup},
       {"--steps", &o.steps, "stop after this many steps in total"},
       {"--epochs", &o.epochs, "or after so many times all samples"},
       {"--schedule", &o.schedule,
        "of the learning rate: constant, linear[:FLOOR], cosine[:FLOOR], step:EVERY[:GAMMA], "
        "one-cycle, or a file with a factor a line",
        kShown, kRecipeGroup},
       {"--warmup", &o.warmup, "steps in which the learning rate rises from 0", kShown,
        kRecipeGroup},
       {"--schedule-steps", &o.schedule_steps, "length of the schedule (default: --steps)",
        Flag::Default::kHidden, kRecipeGroup},
       {"--run-dir", &o.run_dir, "where everything is written (default: runs/MODEL)"},
       {"--timeout", &o.timeout, "seconds that a wait for a peer may take", kShown},
       {"--transport", &o.transport,
        "auto: shared memory within a machine, else Gloo; gloo: always Gloo", kShown},
       {"--enforce", &o.enforce,
        "what workers hold emulated devices to: worker (speed and links), speeds (links are "
        "limited outside: tc) or outside (speeds, too: cgroup quotas)",
        kShown},
       {"--trace-steps", &o.trace_steps, "last steps kept as a trace", kShown}});
  put_under("Workers", {"--timeout", "--transport", "--enforce", "--trace-steps"}, flags);
  return flags;
}

std::vector<Flag> evaluation_flags(RunOptions& o) {
  return {{"--eval-data", &o.eval_data, "samples to evaluate on, as --data", Flag::Default::kHidden,
           kEvaluationGroup},
          {"--eval-every", &o.eval_every, "steps between evaluations; 0: at the end", kShown,
           kEvaluationGroup},
          {"--best", &o.best,
           "what says which model is best: loss, or a metric such as accuracy or accuracy:max",
           kShown, kEvaluationGroup},
          {"--patience", &o.patience,
           "evaluations without a better one after which training ends; 0: none", kShown,
           kEvaluationGroup},
          {"--serve", &o.serve,
           "a page that follows the run, for browsers of this machine, at this port of 127.0.0.1; "
           "without one, at any that is free"}};
}

std::string find_python(const std::string& given, const Context& context) {
  if (!given.empty()) return given;
  const auto found = context.environment.find("MOTLEY_PYTHON");
  return found == context.environment.end() ? "python3" : found->second;
}

Result<control::TrainChoices> make_train_choices(const RunOptions& options,
                                                 const std::string& python) {
  control::TrainChoices choices;
  MOTLEY_ASSIGN(choices.data, make_data_source(options, python));
  MOTLEY_ASSIGN(choices.shuffle, parse_shuffle(options.shuffle));
  if (options.steps < 1 && !(options.epochs > 0) && !options.prepare)
    return usage_error("cli.steps", "how long? give --steps N with N >= 1, or --epochs X");
  if (options.steps > 0 && options.epochs > 0)
    return usage_error("cli.steps", "--steps and --epochs: give one of them");
  MOTLEY_ASSIGN(choices.schedule, run::parse_schedule(options.schedule));
  choices.schedule.warmup = options.warmup;
  choices.schedule.steps = options.schedule_steps > 0 ? options.schedule_steps : options.steps;
  if (options.steps > 0)
    MOTLEY_RETURN_IF_ERROR(run::verify_schedule(choices.schedule, options.steps));
  MOTLEY_ASSIGN(choices.evaluation, make_evaluation_choices(options, choices.data));
  MOTLEY_ASSIGN(choices.resume, parse_resume(options.resume));
  if (!(options.timeout > 0))
    return usage_error("cli.timeout", "--timeout: wanted a number of seconds above 0");
  MOTLEY_ASSIGN(choices.enforce, parse_enforce(options.enforce));
  if (!cluster::is_transport(options.transport))
    return usage_error("cli.transport", fmt::format("--transport: found '{}', wanted auto or gloo",
                                                    options.transport));
  choices.steps = options.steps;
  choices.epochs = options.epochs;
  choices.seed = options.plan.planning.seed;
  choices.run_dir = options.run_dir;
  choices.checkpoint_every = options.checkpoint_every;
  if (options.checkpoint != "lead" && options.checkpoint != "hosts")
    return usage_error("cli.flags", fmt::format("--checkpoint: found '{}', wanted lead or hosts",
                                                options.checkpoint));
  if (options.checkpoint == "hosts") choices.parts_at = control::TrainChoices::PartsAt::kHosts;
  choices.timeout = Seconds(options.timeout);
  choices.transport = options.transport;
  choices.trace_steps = options.trace_steps;
  return choices;
}

std::string default_run_dir(const std::string& model_path) {
  return "runs/" + std::filesystem::path(model_path).stem().string();
}

Result<control::Measured> train(const control::PreparedRun& prepared, const Context& context) {
  Teller teller(context);
  return control::train(prepared, teller.outside());
}

}  // namespace motley::cli
