#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/elastic/job_standing.h"
#include "motley/policy/policy.h"

namespace motley::elastic {

/// What a job requests or gives back, and why.
struct Rented {
  std::vector<std::pair<std::size_t, int>> what;  ///< offers, number of additional machines
  std::string why;
  std::optional<std::size_t> back = {};  ///< the machine given back
  bool is_nothing() const { return what.empty() && !back; }
};

/// The switch of a job from spot to on-demand machines, made so that the deadline holds.
struct OnDemandSwitch {
  bool was_safe = false;   ///< on demand alone could have been in time
  bool is_forced = false;  ///< it is made
};

/// Chooses by the job's rule (job_renting.h). Updates the switch.
Rented choose_rented(const JobStanding& standing, OnDemandSwitch& change);

/// Lists: as it is, and with as many of each offer as are missing (one where none is).
std::vector<policy::Alternative> list_alternatives(const JobStanding& standing);

}  // namespace motley::elastic
