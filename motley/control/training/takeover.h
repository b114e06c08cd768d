#pragma once

#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/control/planning/inputs.h"
#include "motley/control/training/adaptation.h"
#include "motley/run/job.h"
#include "motley/run/launch/agent_takeover.h"

namespace motley::control {

/// What hosts are left of a training, beside what Adapting adds: `arguments`, by which `motley` was
/// called, `name` of the run directory, this `host`, and a copy of the store of prices (a path;
/// where there is one) in the folder `profiles`.
Result<Json> make_standby_state(const std::vector<std::string>& arguments,
                                const std::string& run_dir, const std::string& store);

/// Puts the cluster into it, as it is known now.
void tell_cluster(const cluster::Cluster& cluster, Json& standby_state);

/// What a training needs that goes on here.
struct TakeoverInputs {
  std::string run_dir;   ///< made, with the log until then
  std::string plan;      ///< file of the last one that was to begin
  std::string profiles;  ///< store of prices; "": none was left
  std::string market;    ///< file, with the coordinator's state of it beside; "": nothing is rented
  cluster::Cluster cluster;
  run::Job job;                      ///< as this host had it
  std::vector<std::string> absent;   ///< devices without a process
  std::vector<std::string> joiners;  ///< as Adaptation has them
  TakenOver known;
  Json standby_state;  ///< for the next one
};
/// The run directory lies below what agents here keep beyond their time. Errors: what was left is
/// not what it should be.
Result<TakeoverInputs> open_takeover(const run::TakeoverState& inherited);

}  // namespace motley::control
