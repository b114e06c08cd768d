#pragma once

#include <memory>
#include <string>

#include "motley/cli/planning_options.h"

namespace motley::cli {

/// Where a plan comes from.
struct PlanOrFile {
  PlanningOptions planning;
  std::string file;  ///< plan.json; "": model and cluster are planned now
};

/// A plan from a file, or made now, with its inputs. Parts refer to each other: it stays where it
/// was made.
struct ChosenPlan {
  control::Inputs inputs;
  control::Planned planned;
  control::Priced priced;  ///< empty: nothing prices the plan, so nothing can be predicted
  std::string text;        ///< the outcome's table, when planned now
};

/// Reads or makes it. `for_file` is what to do about missing prices of a plan that is read; a plan
/// that is made now has prices, by --profile.
enum class Prices {
  kAsAsked,  ///< by --profile; an error if there are none
  kIfThere,  ///< nothing is measured for them, and none are needed
};
Result<std::unique_ptr<ChosenPlan>> choose_plan(const PlanOrFile& from, Prices for_file,
                                                const Context& context);

}  // namespace motley::cli
