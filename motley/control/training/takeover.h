#pragma once

#include <string>
#include <vector>

#include "motley/base/json.h"
#include "motley/control/planning/inputs.h"
#include "motley/control/training/adaptation.h"
#include "motley/run/job.h"
#include "motley/run/launch/agent_takeover.h"

namespace motley::control {

/// Returns the constant part of the state on standbys (Adapting adds the rest): `arguments` of
/// `motley`, `name` of the run directory, `host`, and `profiles`, a folder with a copy of `store`.
Result<Json> make_standby_state(const std::vector<std::string>& arguments,
                                const std::string& run_dir, const std::string& store);

void tell_cluster(const cluster::Cluster& cluster, Json& standby_state);

struct TakeoverInputs {
  std::string run_dir;   ///< new, with the log so far
  std::string plan;      ///< file of the latest plan
  std::string profiles;  ///< profile store; "": none was left
  std::string market;    ///< file, beside the coordinator's renting state; "": no renting
  cluster::Cluster cluster;
  run::Job job;  ///< from this host's copy
  std::vector<std::string> absent;
  std::vector<std::string> joiners;  ///< as in Adaptation
  TakenOver known;
  Json standby_state;
};
/// Makes the run directory in the folder that agents keep. Errors: the replicated state is invalid.
Result<TakeoverInputs> open_takeover(const run::TakeoverState& inherited);

}  // namespace motley::control
