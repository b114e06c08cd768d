#include "motley/cli/app.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "motley/base/text.h"
#include "motley/cli/torch_version.h"
#include "motley/cli/verbs.h"

namespace motley::cli {
namespace {

using Verb = std::function<Result<int>(const Context&)>;

/// A sub-command and what it runs.
struct Registry {
  CLI::App app{"Trains one PyTorch model over unequal devices.", "motley"};
  Context context;
  std::map<CLI::App*, Verb> verbs;
  std::vector<std::string> names;

  CLI::App* add(const std::string& name, const std::string& help, Verb verb) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->fallthrough();
    sub->footer("Every verb takes --json, --quiet and --print PHASE too: motley --help\n");
    verbs[sub] = std::move(verb);
    names.push_back(name);
    return sub;
  }
};

void add_optimizer_options(CLI::App* sub, PlanningOptions& options) {
  sub->add_option("--optimizer", options.optimizer, "sgd, adam or adamw")->capture_default_str();
  sub->add_option("--lr", options.lr, "learning rate (default: 0.01 for sgd, 0.001 for adam)");
  sub->add_option("--momentum", options.momentum, "of sgd")->capture_default_str();
  sub->add_flag("--nesterov", options.nesterov, "Nesterov momentum of sgd");
  sub->add_option("--weight-decay", options.weight_decay, "default: 0, and 0.01 for adamw");
  sub->add_option("--beta1", options.beta1, "of adam")->capture_default_str();
  sub->add_option("--beta2", options.beta2, "of adam")->capture_default_str();
  sub->add_option("--eps", options.eps, "of adam")->capture_default_str();
  for (const char* name : {"--optimizer", "--lr", "--momentum", "--nesterov", "--weight-decay",
                           "--beta1", "--beta2", "--eps"})
    sub->get_option(name)->group("Optimizer");
}

void add_planning_options(CLI::App* sub, PlanningOptions& options) {
  sub->add_option("-m,--model", options.model, "model file written by python -m motley.export");
  sub->add_option("-C,--cluster", options.cluster, "cluster file (TOML)");
  sub->add_option("--global-batch", options.global_batch, "samples a step, over all devices");
  sub->add_option(
         "--planner", options.planner,
         "auto (the better of spmd and split), spmd, split, hap, equal, proportional or random")
      ->capture_default_str();
  sub->add_option("--batch-split", options.batch_split, "samples of each device: 24,12,4");
  sub->add_option("--exclude", options.exclude, "device to leave out; may be repeated");
  sub->add_option("--batch-norm", options.batch_norm, "global: as one device computes; or local")
      ->capture_default_str();
  sub->add_option("--bucket", options.bucket, "size of a gradient exchange")->capture_default_str();
  sub->add_option("--profiles", options.profiles, "profile store (default: in the cache folder)");
  sub->add_option(
         "--profile", options.profile,
         "what is missing: auto measures it; never; model takes it from what other models took")
      ->capture_default_str();
  sub->add_option("--time-limit", options.time_limit,
                  "seconds of search, after which its best plan so far is taken");
  sub->add_option("--seed", options.seed, "of dropout and of the random planner")
      ->capture_default_str();
  add_optimizer_options(sub, options);
}

/// A layer profile of another tool in place of a model.
void add_layer_options(CLI::App* sub, LayerOptions& options) {
  const std::vector<CLI::Option*> added = {
      sub->add_option("--layer-times", options.times,
                      "Sailor's KIND=profile.json; may be repeated"),
      sub->add_option("--layer-sizes", options.sizes, "Sailor's llm_info.json"),
      sub->add_option("--layer-model", options.model, "the model's name in there"),
      sub->add_option("--layer-network", options.network, "Sailor's network fits, for pipelines"),
      sub->add_option("--devices-per-host", options.devices_per_host, "of a pipeline's hosts")
          ->capture_default_str(),
      sub->add_option("--layer-metis", options.metis, "Metis' DeviceType.KIND_tpN_bsM.json files")};
  for (CLI::Option* option : added) option->group("Imported layer profile, in place of -m");
}

/// HAP itself, on its authors' workloads.
void add_hap_options(CLI::App* sub, HapFlags& options) {
  const std::vector<CLI::Option*> added = {
      sub->add_option("--hap-model", options.model,
                      "bert12, vit12, vgg19 or bert-moe12; bert, vit, bert-moe of other depths"),
      sub->add_option("--hap-cluster", options.cluster,
                      "v100-p100:N or equal:N; -C CLUSTER.toml takes its place")
          ->capture_default_str()};
  for (CLI::Option* option : added)
    option->group("HAP's own workloads, with --planner hap-released or hap-described");
}

void add_run_options(CLI::App* sub, RunOptions& options) {
  add_planning_options(sub, options.planning);
  sub->add_option("--data", options.data,
                  "training data: .npz, .safetensors or flat tokens (.bin)");
  sub->add_option("--tokens", options.tokens, "width of a flat token: u16 or u32")
      ->capture_default_str();
  sub->add_option("--seq", options.seq, "window length of flat tokens");
  sub->add_option("--shuffle", options.shuffle, "none, or a seed")->capture_default_str();
  sub->add_option("--steps", options.steps, "stop after this many steps in total");
  sub->add_option("--run-dir", options.run_dir,
                  "where everything is written (default: runs/MODEL)");
  sub->add_option("--timeout", options.timeout, "seconds that a wait for a peer may take")
      ->capture_default_str();
  sub->add_option("--transport", options.transport,
                  "auto: shared memory within a machine, else Gloo; gloo: always Gloo")
      ->capture_default_str();
  sub->add_option(
         "--enforce", options.enforce,
         "what workers hold emulated devices to: worker (speed and links), speeds (links are "
         "limited outside: tc) or outside (speeds, too: cgroup quotas)")
      ->capture_default_str();
  sub->add_option("--trace-steps", options.trace_steps, "last steps kept as a trace")
      ->capture_default_str();
}

/// Every verb with its flags. The option structs live in `main`'s frame, behind the registry.
struct Options {
  ProbeOptions probe;
  PlanningOptions doctor, plan;
  ProfileOptions profile;
  SimulateOptions simulate;
  RunOptions run, verify;
  ReportOptions report, trace;
  ConsolidateOptions consolidate;
  DemoOptions demo;
};

void add_artifact_verbs(Registry& registry, Options& o) {
  CLI::App* probe = registry.add("probe", "describe this machine as a cluster file",
                                 [&](const Context& c) { return probe_verb(o.probe, c); });
  probe->add_option("-o,--output", o.probe.output, "cluster file to write (default: stdout)");

  CLI::App* doctor = registry.add("doctor", "check machine, cluster, model and versions",
                                  [&](const Context& c) { return doctor_verb(o.doctor, c); });
  doctor->add_option("-C,--cluster", o.doctor.cluster, "cluster file (TOML)");
  doctor->add_option("-m,--model", o.doctor.model, "model file");

  CLI::App* profile = registry.add("profile", "measure a model's operators and the exchanges",
                                   [&](const Context& c) { return profile_verb(o.profile, c); });
  add_planning_options(profile, o.profile.planning);
  profile->add_option("--from-run", o.profile.from_run,
                      "correct the profile by what this run directory's trace measured");

  CLI::App* plan = registry.add("plan", "split the batch; say time and memory beforehand",
                                [&](const Context& c) { return plan_verb(o.plan, c); });
  add_planning_options(plan, o.plan);
  add_layer_options(plan, o.plan.layers);
  add_hap_options(plan, o.plan.hap);
  plan->add_option("-o,--output", o.plan.output, "plan file to write");

  CLI::App* simulate = registry.add("simulate", "run a plan on a clock",
                                    [&](const Context& c) { return simulate_verb(o.simulate, c); });
  add_planning_options(simulate, o.simulate.planning);
  add_layer_options(simulate, o.simulate.planning.layers);
  simulate->add_option("--plan", o.simulate.plan, "plan file");
  simulate->add_option("--steps", o.simulate.steps, "steps to simulate")->capture_default_str();
  simulate->add_option("--conditions", o.simulate.conditions,
                       "file of jitter, slow-downs and absences: gives distributions");
  simulate->add_option("--runs", o.simulate.runs, "simulated under --conditions")
      ->capture_default_str();
  simulate->add_option("--trace", o.simulate.trace, "Chrome/Perfetto trace to write");
}

void add_running_verbs(Registry& registry, Options& o) {
  CLI::App* run =
      registry.add("run", "train", [&](const Context& c) { return run_verb(o.run, c); });
  add_run_options(run, o.run);
  run->add_option("--plan", o.run.plan,
                  "plan file; without it, model and cluster are planned first");
  run->add_option("--resume", o.run.resume, "auto or never")->capture_default_str();
  run->add_option("--checkpoint-every", o.run.checkpoint_every, "steps; 0: only at the end")
      ->capture_default_str();

  o.verify.steps = 20;
  CLI::App* verify = registry.add("verify", "prove that the result is that of one device",
                                  [&](const Context& c) { return verify_verb(o.verify, c); });
  add_run_options(verify, o.verify);

  CLI::App* report = registry.add("report", "what happened in a run, predicted beside measured",
                                  [&](const Context& c) { return report_verb(o.report, c); });
  report->add_option("run-dir", o.report.run_dir, "run directory")->required();

  CLI::App* trace = registry.add("trace", "a run's trace for chrome://tracing or Perfetto",
                                 [&](const Context& c) { return trace_verb(o.trace, c); });
  trace->add_option("run-dir", o.trace.run_dir, "run directory")->required();
  trace->add_option("-o,--output", o.trace.output, "file to write (default: RUN-DIR/trace.json)");

  CLI::App* consolidate =
      registry.add("consolidate", "put a checkpoint's parts together into whole tensors",
                   [&](const Context& c) { return consolidate_verb(o.consolidate, c); });
  consolidate->add_option("path", o.consolidate.path, "run directory, or a checkpoint")->required();
  consolidate->add_option("-o,--output", o.consolidate.output,
                          "folder of the new checkpoint (default: in place of the old one)");

  CLI::App* demo = registry.add("demo", "two models on three emulated devices, checked",
                                [&](const Context& c) { return demo_verb(o.demo, c); });
  demo->add_option("--python", o.demo.python, "interpreter with PyTorch")->capture_default_str();
  demo->add_option("--examples", o.demo.examples, "folder of examples")->capture_default_str();
  demo->add_option("--directory", o.demo.directory, "where to write")->capture_default_str();
}

/// `--batch_split` is `--batch-split`.
std::vector<std::string> normalise(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (!argument.starts_with("--")) continue;
    const auto end = std::min(argument.find('='), argument.size());
    std::replace(argument.begin(), argument.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  }
  return arguments;
}

/// A clearer message than CLI11's for a mistyped verb or flag.
std::string explain(const Registry& registry, const std::vector<std::string>& arguments,
                    const CLI::ParseError& error) {
  if (!arguments.empty() && !arguments[0].starts_with("-") &&
      std::find(registry.names.begin(), registry.names.end(), arguments[0]) == registry.names.end())
    return fmt::format("unknown verb '{}'{}; verbs: {}", arguments[0],
                       suggestion_clause(arguments[0], registry.names), join(registry.names, " "));
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return text;
  std::vector<std::string> flags;
  for (const auto& [sub, verb] : registry.verbs) {
    if (!sub->parsed()) continue;
    for (const CLI::Option* option : sub->get_options())
      for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  for (const std::string& argument : arguments) {
    const std::string flag = argument.substr(0, argument.find('='));
    if (flag.starts_with("--") && std::find(flags.begin(), flags.end(), flag) == flags.end())
      if (const auto suggestion = find_suggestion(flag, flags))
        return fmt::format("unknown flag '{}', did you mean '{}'?", flag, *suggestion);
  }
  return text;
}

std::string default_store(const std::map<std::string, std::string>& environment) {
  auto find = [&](const char* name) -> std::string {
    const auto it = environment.find(name);
    return it == environment.end() ? "" : it->second;
  };
  if (const auto path = find("MOTLEY_PROFILES"); !path.empty()) return path;
  if (const auto cache = find("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/motley/profiles.db";
  if (const auto home = find("HOME"); !home.empty()) return home + "/.cache/motley/profiles.db";
  return "motley-profiles.db";
}

void add_common_options(Registry& registry) {
  Context& context = registry.context;
  registry.app.add_flag("--json", context.json, "one JSON object on stdout");
  registry.app.add_flag("-q,--quiet", context.quiet, "no progress and notes");
  registry.app.add_option("--print", context.print_phase,
                          "print a phase's result: load, price, search, synth, simulate");
  registry.app.add_option("--stop-after", context.stop_after, "stop after that phase");
  registry.app.add_option("--dump-dir", context.dump_dir, "write every phase's result there");
  const std::string torch = built_torch_version();
  registry.app.set_version_flag(
      "--version", fmt::format("motley {}{}", MOTLEY_VERSION,
                               torch.empty() ? "" : fmt::format(" for PyTorch {}", torch)));
  registry.app.require_subcommand(1);
}

}  // namespace

int run_app(std::vector<std::string> arguments, const std::string& program,
            const std::map<std::string, std::string>& environment) {
  Registry registry;
  Options options;
  registry.context.environment = environment;
  registry.context.terminal = ::isatty(2) != 0;
  registry.context.worker =
      (std::filesystem::path(program).parent_path() / "motley-worker").string();
  registry.context.profile_store = default_store(environment);
  add_common_options(registry);
  add_artifact_verbs(registry, options);
  add_running_verbs(registry, options);

  arguments = normalise(std::move(arguments));
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    registry.app.parse(reversed);
  } catch (const CLI::Success& asked) {  // --help, --version
    return registry.app.exit(asked);
  } catch (const CLI::ParseError& error) {
    return report_error(registry.context, {ErrorKind::kUsage, "cli.usage",
                                           explain(registry, arguments, error) +
                                               "; motley --help lists what there is"});
  }
  for (const auto& [sub, verb] : registry.verbs) {
    if (!sub->parsed()) continue;
    const Result<int> code = verb(registry.context);
    return code ? *code : report_error(registry.context, code.error());
  }
  return kUsage;
}

}  // namespace motley::cli
