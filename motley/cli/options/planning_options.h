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

/// What verbs that plan have in common. Strings are as given on the command line; "" = not given.
struct PlanningOptions {
  std::string model, cluster, profiles;
  std::string planner = "auto";
  std::string batch_split;           ///< "24,12,4"
  std::string stages;                ///< file of given stages
  std::vector<std::string> exclude;  ///< device names
  std::int64_t global_batch = 0, micro_batches = 0;
  std::uint64_t seed = 0;
  std::optional<double> time_limit;  ///< of the search, in seconds
  plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal;
  std::string updates = "auto";
  bool tf32 = false;
  std::string bucket = "auto";
  control::Missing profile = control::Missing::kMeasure;
  std::int64_t survive = 0;    ///< devices that may be lost at once
  std::string profile_rounds;  ///< how often it is measured; "": as the environment says, or 3
  RecipeOptions recipe;
  control::LayerFiles layers;  ///< in place of the model; of verbs that have layer_flags
};
std::vector<Flag> planning_flags(PlanningOptions& options);

/// Of verbs that ask for plans which are to outlive losses.
Flag survive_flag(PlanningOptions& options, std::string help);

/// Of verbs that want times of operators.
Flag profile_flag(PlanningOptions& options, std::string help);

/// Of verbs that take a layer profile of another tool in place of a model.
std::vector<Flag> layer_flags(PlanningOptions& options);

/// How many samples an epoch has, for its cost; 0: not known.
Flag samples_flag(std::int64_t& samples);
Result<void> check_samples(std::int64_t samples);

/// "24,12,4"; commas only.
Result<std::vector<std::int64_t>> parse_batch_split(const std::string& text);
/// Where a plan, or a run, says how large the global batch is, the flag may be absent.
enum class GlobalBatch { kGiven, kElsewhere };
Result<control::Question> make_question(const PlanningOptions& options, GlobalBatch batch);
Result<control::PriceChoices> make_price_choices(const PlanningOptions& options,
                                                 const Context& context);
Result<control::PlanChoices> make_plan_choices(const PlanningOptions& options,
                                               const Context& context);

/// Where a plan comes from.
struct PlanOrFile {
  PlanningOptions planning;
  std::string file;      ///< plan.json; "": model and cluster are planned now
  bool commits = false;  ///< its steps are to happen on all devices or on none
  /// As another process had it, in place of the file.
  std::optional<cluster::Cluster> cluster = {};
};

/// Reads or makes it, with a printer of its own. A plan that is made now has prices, by --profile.
Result<std::unique_ptr<control::ChosenPlan>> choose_plan(const PlanOrFile& from,
                                                         control::Prices for_file,
                                                         const Context& context);

}  // namespace motley::cli
