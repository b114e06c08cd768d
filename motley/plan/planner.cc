#include "motley/plan/planner.h"

#include <algorithm>

namespace motley::plan {

std::string_view reason_name(Reason reason) {
  switch (reason) {
    case Reason::kOptimal:
      return "optimal";
    case Reason::kFeasible:
      return "feasible";
    case Reason::kInfeasible:
      return "infeasible";
    case Reason::kLimit:
      return "limit";
  }
  return "";
}

Plan blank_plan(const Problem& problem) {
  Plan plan;
  plan.model_hash = problem.model_hash;
  plan.cluster_hash = cluster::cluster_hash(*problem.cluster);
  plan.global_batch = problem.global_batch;
  plan.recipe = problem.recipe;
  plan.batch_norm = problem.batch_norm;
  plan.batch_norm_span = problem.batch_norm_span;
  plan.bucket_bytes = problem.bucket_bytes;
  plan.updates = problem.updates;
  return plan;
}

std::vector<DeviceId> idle_devices(const Problem& problem, const std::vector<DeviceId>& used) {
  std::vector<DeviceId> idle;
  for (const DeviceId device : problem.devices) {
    if (std::find(used.begin(), used.end(), device) == used.end()) idle.push_back(device);
  }
  return idle;
}

}  // namespace motley::plan
