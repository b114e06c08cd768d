#include "motley/cli/options/planning_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cli/context/progress_printer.h"
#include "peers/spaces/restricted_planner.h"

namespace motley::cli {
namespace {

constexpr std::string_view kAutoBucket = "auto";
constexpr Bytes kMostBucket(16 << 20);
constexpr std::int64_t kMostLost = 1 << 20;

}  // namespace

std::vector<Flag> planning_flags(PlanningOptions& o) {
  std::vector<Flag> flags = {
      {"-m,--model", &o.model, "model file written by python -m motley.export"},
      {"-C,--cluster", &o.cluster, "cluster file (TOML)"},
      {"--global-batch", &o.global_batch, "samples per step over all devices"},
      {"--planner", &o.planner,
       "auto (the best of split, spmd and stages), split, spmd, stages, hap, equal, proportional "
       "or random; stage planners of other tools: equal-stages, uniform-stages, amp, sailor, harp, "
       "zorse",
       kShown},
      {"--batch-split", &o.batch_split, "samples of each device: 24,12,4"},
      {"--stages", &o.stages, "JSON file of given stages, in the form of `stages` in plan --json"},
      {"--micro-batches", &o.micro_batches,
       "micro-batches per step (gradient accumulation; batch norm uses the statistics of each); 0: "
       "as few as memory allows",
       kShown},
      {"--exclude", &o.exclude, "device to leave out (repeatable)"},
      {"--batch-norm",
       one_of("cli.batch-norm", "--batch-norm", o.batch_norm,
              {{"global", plan::BatchNormMode::kGlobal}, {"local", plan::BatchNormMode::kLocal}}),
       "global: statistics of the global batch, as on one device; local: of each device", kShown},
      {"--updates", &o.updates,
       "optimizer kernels of replicated parameters: auto, native or portable", kShown},
      {"--sync", &o.sync,
       "who sums gradients of replicas: all_reduce (all of them), owners (each device a part), "
       "server:DEVICE (one device), or auto (as the planner says)",
       kShown},
      {"--carry", &o.carry,
       "exchanges of gradients that end in the next step, in front of what reads their parameters: "
       "auto (where a step takes at least 1 % less), none, so many of the last, or NUMBER/SKIPPED "
       "behind the last SKIPPED",
       kShown},
      {"--tf32", &o.tf32, "allow TF32 in float32 products on GPUs: faster, less exact"},
      {"--bucket", &o.bucket, "size of a gradient bucket; auto: 4 MiB, or 16 MiB if faster",
       kShown},
      {"--profiles", &o.profiles, "profile store (default: in the cache folder)"},
      profile_flag(
          o,
          "missing times: auto measures them; never refuses; model takes them from other models"),
      {"--profile-rounds", &o.profile_rounds,
       "how often to measure what is missing (default: 3); 1 is quick and rough"},
      {"--time-limit", &o.time_limit, "seconds of search; then the best plan so far is taken"},
      {"--seed", &o.seed, "seed of dropout, other random numbers and the random planner", kShown},
  };
  put_under(
      "Planning",
      {"--planner", "--batch-split", "--stages", "--micro-batches", "--exclude", "--batch-norm",
       "--updates", "--sync", "--carry", "--tf32", "--bucket", "--time-limit", "--seed"},
      flags);
  put_under("Times of operators", {"--profiles", "--profile", "--profile-rounds"}, flags);
  const std::vector<Flag> recipe = recipe_flags(o.recipe);
  flags.insert(flags.end(), recipe.begin(), recipe.end());
  return flags;
}

std::vector<Flag> layer_flags(PlanningOptions& options) {
  control::LayerFiles& files = options.layers;
  std::vector<Flag> flags = {
      {"--layer-times", &files.times, "Sailor's KIND=profile.json (repeatable)"},
      {"--layer-sizes", &files.sizes, "Sailor's llm_info.json"},
      {"--layer-model", &files.model, "name of the model in that file"},
      {"--layer-network", &files.network, "Sailor's network fits (default: the cluster's links)"},
      {"--layer-pairs", &files.pairs, "Sailor's network fits between different kinds"},
      {"--layer-zone", &files.zone, "zone to take from these fits"},
      {"--layer-recompute", &files.may_recompute, "allow stages to recompute activations"},
      {"--devices-per-host", &files.devices_per_host, "devices per host of a pipeline", kShown},
      {"--layer-metis", &files.metis, "Metis' DeviceType.KIND_tpN_bsM.json files"}};
  for (Flag& flag : flags) flag.group = "Imported layer profile, in place of -m";
  return flags;
}

Flag survive_flag(PlanningOptions& options, std::string help) {
  return {"--survive", &options.survive, std::move(help), kShown};
}

Flag profile_flag(PlanningOptions& options, std::string help) {
  return {"--profile",
          one_of("cli.profile", "--profile", options.profile,
                 {{"auto", control::Missing::kMeasure},
                  {"never", control::Missing::kRefuse},
                  {"model", control::Missing::kModel}}),
          std::move(help), kShown};
}

Flag samples_flag(std::int64_t& samples) {
  return {"--samples", &samples, "samples per epoch, to price an epoch by price_per_hour"};
}

Result<void> check_samples(std::int64_t samples) {
  if (samples >= 0) return {};
  return usage_error("cli.samples", fmt::format("--samples: found {}, wanted 1 or more", samples));
}

Result<std::vector<std::int64_t>> parse_batch_split(const std::string& text) {
  std::vector<std::int64_t> samples;
  if (text.empty()) return samples;
  for (const std::string_view part : split(text, ',')) {
    const auto value = find_integer(trim(part));
    if (!value || *value < 0)
      return usage_error(
          "cli.batch-split",
          fmt::format("--batch-split: found '{}', wanted samples of each device such "
                      "as 24,12,4",
                      text));
    samples.push_back(*value);
  }
  return samples;
}

Result<control::Question> make_question(const PlanningOptions& options, GlobalBatch batch) {
  if (options.model.empty() && !options.layers.is_given())
    return usage_error("cli.model",
                       "which model? give -m MODEL.motley (written by python -m "
                       "motley.export)");
  if (options.cluster.empty())
    return usage_error("cli.cluster",
                       "which devices? give -C CLUSTER.toml (motley probe writes one)");
  control::Question question;
  question.global_batch = options.global_batch;
  if (batch == GlobalBatch::kElsewhere && options.global_batch == 0) question.global_batch = 1;
  if (question.global_batch < 1)
    return usage_error("cli.global-batch", "how many samples a step? give --global-batch N");
  question.model = options.model;
  if (options.layers.is_given()) {
    MOTLEY_ASSIGN(question.layers, control::read_layers(options.layers));
  }
  question.cluster = options.cluster;
  question.exclude = options.exclude;
  MOTLEY_ASSIGN(question.lowering.recipe, parse_recipe(options.recipe));
  question.lowering.batch_norm = options.batch_norm;
  if (options.updates != "auto") {
    const auto updates = plan::parse_updates(options.updates);
    if (!updates)
      return usage_error("cli.updates", "--updates: " + updates.error().message + " or 'auto'");
    question.updates = *updates;
  }
  question.tf32 = options.tf32;
  if (options.survive < 0)
    return usage_error("cli.survive",
                       fmt::format("--survive: found {}, wanted how many devices may be lost at "
                                   "once, 0 or more",
                                   options.survive));
  question.survive = static_cast<int>(std::min(options.survive, kMostLost));
  question.commits = options.survive > 0;  // as in an elastic run
  if (options.bucket != kAutoBucket) {
    MOTLEY_ASSIGN(question.lowering.bucket_bytes, parse_bytes(options.bucket));
  }
  return question;
}

namespace {

/// The flag's number, else the environment's, else the default.
Result<int> find_profile_rounds(const std::string& flag, const Context& context) {
  std::string name = "--profile-rounds", text = flag;
  const auto found = context.environment.find("MOTLEY_PROFILE_ROUNDS");
  if (text.empty() && found != context.environment.end()) std::tie(name, text) = *found;
  if (text.empty()) return control::PriceChoices().rounds;
  const auto rounds = find_integer(text);
  if (!rounds || *rounds < 1 || *rounds > 100)
    return usage_error("cli.profile-rounds",
                       fmt::format("{}: found '{}', wanted 1 to 100", name, text));
  return static_cast<int>(*rounds);
}

Result<search::Sync> parse_sync(const std::string& text) {
  using Kind = search::Sync::Kind;
  constexpr std::string_view kServer = "server:";
  if (text.starts_with(kServer) && text.size() > kServer.size())
    return search::Sync{Kind::kServer, text.substr(kServer.size())};
  for (const auto& [word, kind] : {std::pair{"auto", Kind::kAuto},
                                   {"all_reduce", Kind::kAllReduce},
                                   {"owners", Kind::kOwners}})
    if (text == word) return search::Sync{kind, ""};
  return usage_error("cli.sync", fmt::format("--sync: found '{}', wanted auto, all_reduce, owners "
                                             "or server:DEVICE",
                                             text));
}

/// Parses "auto" (none: as the planner says), "none", "3.5" and "3.5/2", which skips the last two.
Result<std::optional<plan::Carried>> parse_carry(const std::string& text) {
  if (text == "auto") return std::optional<plan::Carried>();
  const std::size_t slash = std::min(text.find('/'), text.size());
  const auto exchanges = text == "none" ? std::optional(0.0) : find_float(text.substr(0, slash));
  const auto skipped =
      slash < text.size() ? find_integer(text.substr(slash + 1)) : std::optional<std::int64_t>(0);
  if (exchanges && *exchanges >= 0 && skipped && *skipped >= 0)
    return std::optional(plan::Carried{*exchanges, *skipped});
  return usage_error("cli.carry", fmt::format("--carry: found '{}', wanted auto, none, a number of "
                                              "exchanges or NUMBER/SKIPPED",
                                              text));
}

}  // namespace

Result<control::PriceChoices> make_price_choices(const PlanningOptions& options,
                                                 const Context& context) {
  control::PriceChoices choices;
  choices.profiles = options.profiles.empty() ? context.profile_store : options.profiles;
  choices.missing = options.profile;
  MOTLEY_ASSIGN(choices.rounds, find_profile_rounds(options.profile_rounds, context));
  return choices;
}

Result<void> refuse_exchanges(const PlanningOptions& options) {
  MOTLEY_ASSIGN(const search::Sync sync, parse_sync(options.sync));
  MOTLEY_ASSIGN(const auto carried, parse_carry(options.carry));
  const bool is_of_sync = sync.kind != search::Sync::Kind::kAuto;
  if (!is_of_sync && (!carried || carried->exchanges == 0)) return {};
  return usage_error(is_of_sync ? "cli.sync" : "cli.carry",
                     fmt::format("{} goes with plans that are made of a model on a cluster (-m, "
                                 "-C); leave it out",
                                 is_of_sync ? "--sync" : "--carry"));
}

Result<control::PlanChoices> make_plan_choices(const PlanningOptions& options,
                                               const Context& context) {
  if (options.time_limit && !(*options.time_limit > 0))
    return usage_error(
        "cli.time-limit",
        fmt::format("--time-limit: found {}, wanted seconds above 0", *options.time_limit));
  control::PlanChoices choices;
  MOTLEY_ASSIGN(choices.prices, make_price_choices(options, context));
  MOTLEY_ASSIGN(choices.manual, parse_batch_split(options.batch_split));
  if (options.micro_batches < 0)
    return usage_error(
        "cli.micro-batches",
        fmt::format("--micro-batches: found {}, wanted a number from 0 on", options.micro_batches));
  choices.micro_batches = options.micro_batches;
  if (!options.stages.empty()) {
    if (!options.batch_split.empty() || options.micro_batches != 0 || options.planner != "auto")
      return usage_error("cli.stages",
                         "--stages says all of the plan; leave out --planner, --batch-split and "
                         "--micro-batches");
    MOTLEY_ASSIGN(const std::string text, read_file(options.stages));
    MOTLEY_ASSIGN(choices.stages, plan::parse_given_stages(text, options.stages));
  }
  if (options.bucket == kAutoBucket) choices.most_bucket_bytes = kMostBucket;
  MOTLEY_ASSIGN(choices.sync, parse_sync(options.sync));
  MOTLEY_ASSIGN(choices.carried, parse_carry(options.carry));
  choices.planner = options.planner;
  choices.planners = peers::planners();
  choices.seed = options.seed;
  if (options.time_limit) choices.time_limit = Seconds(*options.time_limit);
  return choices;
}

Result<std::unique_ptr<control::ChosenPlan>> choose_plan(const PlanOrFile& from,
                                                         control::Prices for_file,
                                                         const Context& context) {
  ProgressPrinter printer(context);
  const bool is_made_now = from.file.empty();
  MOTLEY_ASSIGN(
      control::Question question,
      make_question(from.planning, is_made_now ? GlobalBatch::kGiven : GlobalBatch::kElsewhere));
  question.commits = question.commits || from.commits;
  question.carries = from.carries;
  question.made = from.cluster;
  question.is_whole = from.cluster.has_value();
  MOTLEY_ASSIGN(const control::PlanChoices choices, make_plan_choices(from.planning, context));
  if (!is_made_now && choices.sync.kind != search::Sync::Kind::kAuto)
    return usage_error(
        "cli.sync",
        fmt::format("--sync: {} says who sums gradients; leave it out, or plan again", from.file));
  const bool asks_to_carry = choices.carried && choices.carried->exchanges > 0;
  if (asks_to_carry && (!is_made_now || question.commits || !question.carries))
    return usage_error(
        "cli.carry",
        !is_made_now
            ? fmt::format("--carry: {} says which exchanges are carried; leave it out, or plan "
                          "again",
                          from.file)
            : "--carry: a step that may be undone (--elastic, --survive) or measured by parts "
              "(--adapt split, batch) ends with its exchanges; leave it out");
  if (is_made_now) return control::choose_plan(question, choices, printer.outside());
  MOTLEY_ASSIGN(auto opened, control::open_plan(from.file, question, choices.prices, for_file,
                                                printer.outside()));
  const std::int64_t found = opened->planned.plan.replicas[0].micro_batches;
  if (choices.micro_batches == 0 || choices.micro_batches == found) return opened;
  return usage_error(
      "plan.micro-batches",
      fmt::format("--micro-batches: found {}, {} has {}; leave the flag out, or plan "
                  "again",
                  choices.micro_batches, from.file, found));
}

}  // namespace motley::cli
