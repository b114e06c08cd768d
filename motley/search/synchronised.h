#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/spmd/owner_shares.h"

namespace motley::search {

/// How gradients of parameters that several regions hold are summed.
struct Sync {
  enum class Kind {
    kAuto,       ///< as the planner chooses
    kAllReduce,  ///< all holders sum and update all of them
    kOwners,     ///< each device owns a part of each parameter (plan/owners.h)
    kServer,     ///< one device owns all parameters
  };
  Kind kind = Kind::kAuto;
  std::string server;  ///< name of the device
};

/// Plans of another planner whose gradients are summed as somebody asked for (not kAuto). `owners`
/// tries equal shares and those by links (spmd/owner_shares.h). A plan that does not fit then is
/// infeasible. With owners the bound is unknown (0): bounds are of all-reduces.
class Synchronised : public plan::Planner {
 public:
  /// What the inputs point to must outlive it.
  Synchronised(const PlannerInputs& inputs, std::unique_ptr<plan::Planner> planner, Sync sync)
      : inputs_(inputs), planner_(std::move(planner)), sync_(std::move(sync)) {}
  std::string_view name() const override { return planner_->name(); }
  /// Usage errors (search.sync): a server that the plan does not use; owners of a plan in which one
  /// region holds all parameters.
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  struct Choice {
    OwnerShares shares;
    std::string who;  ///< sums gradients
  };
  struct Priced {
    plan::Plan plan;
    plan::Price price;
    std::string who;
  };
  Result<std::vector<Choice>> find_choices(const plan::Problem& problem,
                                           const plan::Plan& plan) const;
  Result<std::vector<Priced>> price(const std::vector<Choice>& choices,
                                    const plan::Plan& plan) const;

  PlannerInputs inputs_;
  std::unique_ptr<plan::Planner> planner_;
  Sync sync_;
};

}  // namespace motley::search
