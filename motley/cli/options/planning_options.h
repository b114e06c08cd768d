#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cli/context/verb.h"
#include "motley/cli/options/recipe_options.h"
#include "motley/control/planning/chosen_plan.h"
#include "motley/control/planning/inputs.h"
#include "motley/control/planning/layer_files.h"

namespace motley::cli {

/// The common flags of verbs that plan. Strings are as given; "": not given.
struct PlanningOptions {
  std::string model, cluster, profiles;
  std::string planner = "auto";
  std::string batch_split;
  std::string stages;
  std::vector<std::string> exclude;
  std::int64_t global_batch = 0, micro_batches = 0;
  std::uint64_t seed = 0;
  std::optional<double> time_limit;  ///< seconds
  plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal;
  std::string updates = "auto";
  std::string sync = "auto";
  std::string carry = "auto";
  bool tf32 = false;
  std::string bucket = "auto";
  control::Missing profile = control::Missing::kMeasure;
  std::int64_t survive = 0;    ///< losses at once that the plan must survive
  std::string profile_rounds;  ///< number of measuring rounds; "": from the environment, or 3
  RecipeOptions recipe;
  control::LayerFiles layers;  ///< instead of the model; for verbs with layer_flags
};
std::vector<Flag> planning_flags(PlanningOptions& options);

/// For verbs whose plans may have to survive losses.
Flag survive_flag(PlanningOptions& options, std::string help);

/// For verbs that need operators' times.
Flag profile_flag(PlanningOptions& options, std::string help);

/// For verbs that accept another tool's layer profile instead of a model.
std::vector<Flag> layer_flags(PlanningOptions& options);

/// Samples of an epoch, for its cost; 0: unknown.
Flag samples_flag(std::int64_t& samples);
Result<void> check_samples(std::int64_t samples);

/// Parses "24,12,4", with commas only.
Result<std::vector<std::int64_t>> parse_batch_split(const std::string& text);
/// kElsewhere: a plan or a run gives the global batch, so the flag may be absent.
enum class GlobalBatch { kGiven, kElsewhere };
Result<control::Question> make_question(const PlanningOptions& options, GlobalBatch batch);
Result<control::PriceChoices> make_price_choices(const PlanningOptions& options,
                                                 const Context& context);
/// Usage errors (cli.sync, cli.carry): --sync or --carry asks for something where plans of layers
/// or of market machines have neither owners nor carried exchanges.
Result<void> refuse_exchanges(const PlanningOptions& options);
Result<control::PlanChoices> make_plan_choices(const PlanningOptions& options,
                                               const Context& context);

struct PlanOrFile {
  PlanningOptions planning;
  std::string file;      ///< plan.json; "": plan the model and cluster now
  bool commits = false;  ///< steps must complete on all devices or on none
  bool carries = true;   ///< exchanges may end in the next step
  /// Another process's cluster, instead of the file.
  std::optional<cluster::Cluster> cluster = {};
};

/// Reads or makes the plan, with its own printer. A new plan has prices, according to --profile.
Result<std::unique_ptr<control::ChosenPlan>> choose_plan(const PlanOrFile& from,
                                                         control::Prices for_file,
                                                         const Context& context);

}  // namespace motley::cli
