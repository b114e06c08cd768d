#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/cluster/edit.h"
#include "motley/control/planning/planning.h"
#include "motley/control/planning/prediction.h"

namespace motley::control {

/// A question about a planned training: the same on other machines, or with another batch.
struct WhatIf {
  std::string what;
  cluster::Edited machines;
  std::int64_t global_batch = 0;
};

struct Asked {
  cluster::Cluster cluster;  ///< as in its file
  Question question;         ///< its cluster is ignored
  PlanChoices choices;
};

/// Parses an edit (cluster/edit.h), "batch 256" or "batch x2". Usage errors `cluster.edit` and
/// `explain.batch`, as of edits.
Result<WhatIf> parse_what_if(const std::string& text, const Asked& asked);

/// Returns common questions about a plan: one more device of each kind where one is; without each
/// device, node and kind; each link, and all links, twice as fast; twice the memory of devices
/// without room (binding.h) or without work; twice and half the batch. Of identical devices or
/// nodes only the first is asked about.
std::vector<WhatIf> obvious_what_ifs(const Asked& asked, const Inputs& inputs,
                                     const plan::Plan& plan, const Predicted& predicted);

struct Consequence {
  std::string what;
  std::int64_t global_batch = 0;
  cluster::Cluster cluster;
  std::vector<std::string> names;  ///< of its devices, before the change
  plan::PlanOutcome outcome;       ///< as of `motley plan` for the edited file
  std::optional<double> per_hour;  ///< price of the machines, if all have one
  bool is_infeasible = false;
  std::string why_not;  ///< without a plan: the reason, or what is unknown
  /// Times that are modelled, not measured (search::Costs), by names after the change.
  std::vector<std::string> modelled;
  double elapsed_s = 0;

  bool is_feasible() const { return outcome.plan.has_value(); }
  /// None: unknown, or no plan.
  std::optional<double> samples_per_s() const;
  std::optional<double> cost_per_sample() const;
};

/// Plans each question exactly as its edited cluster file would be planned: find_plan on
/// read_inputs. An error of one question is its answer. If nothing is measured, questions run
/// concurrently and the listener gets no phases.
std::vector<Consequence> find_consequences(const std::vector<WhatIf>& questions, const Asked& asked,
                                           const Outside& outside);

/// Returns indices, fastest (samples per second) or cheapest (per sample) first. Unknown ones come
/// last; equal ones stay in order.
std::vector<std::size_t> order_by_speed(const std::vector<Consequence>& consequences);
std::vector<std::size_t> order_by_cost(const std::vector<Consequence>& consequences);

}  // namespace motley::control
