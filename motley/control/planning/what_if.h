#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/cluster/edit.h"
#include "motley/control/planning/planning.h"
#include "motley/control/planning/prediction.h"

namespace motley::control {

/// A question about a training that is planned: the same on other machines, or with another batch.
struct WhatIf {
  std::string what;          ///< as it is asked
  cluster::Edited machines;  ///< those then
  std::int64_t global_batch = 0;
};

/// A training as it is asked about.
struct Asked {
  cluster::Cluster cluster;  ///< as its file says
  Question question;         ///< the cluster in it is not looked at
  PlanChoices choices;
};

/// What people ask: an edit of the cluster (cluster/edit.h), "batch 256" or "batch x2". Usage
/// errors as those of edits; code cluster.edit or explain.batch.
Result<WhatIf> parse_what_if(const std::string& text, const Asked& asked);

/// What one would ask of a plan, unasked: one more of each kind of devices where it stands, without
/// each device, node and kind, each link and all links twice as fast, twice the memory of those
/// devices that have no room (binding.h) or nothing to do, twice and half the batch. Of devices and
/// nodes that are identical the first is asked about.
std::vector<WhatIf> obvious_what_ifs(const Asked& asked, const Inputs& inputs,
                                     const plan::Plan& plan, const Predicted& predicted);

/// What the planner says to a question.
struct Consequence {
  std::string what;
  std::int64_t global_batch = 0;
  cluster::Cluster cluster;        ///< as inputs have it
  std::vector<std::string> names;  ///< of its devices, as they were called before the change
  plan::PlanOutcome outcome;       ///< as `motley plan` has it for the edited file
  std::optional<double> per_hour;  ///< price of the machines, if each has one
  bool is_infeasible = false;      ///< nothing fits
  std::string why_not;             ///< where there is no plan: that, or what is not known
  /// What of the devices there nobody measured and is modelled (search::Costs); names as after the
  /// change.
  std::vector<std::string> modelled;
  double elapsed_s = 0;  ///< of all: prices, search

  bool is_feasible() const { return outcome.plan.has_value(); }
  /// None: not known, or no plan.
  std::optional<double> samples_per_s() const;
  std::optional<double> cost_per_sample() const;
};

/// Plans each question just as its edited cluster file would be planned: find_plan on read_inputs.
/// A fault of one question is its answer. Where nothing is measured, questions are answered side by
/// side, and nobody is told phases.
std::vector<Consequence> find_consequences(const std::vector<WhatIf>& questions, const Asked& asked,
                                           const Outside& outside);

/// Places of the consequences, the fastest (samples a second) or the cheapest (a sample) first;
/// equal ones and those of which it is not known in the order given.
std::vector<std::size_t> order_by_speed(const std::vector<Consequence>& consequences);
std::vector<std::size_t> order_by_cost(const std::vector<Consequence>& consequences);

}  // namespace motley::control
