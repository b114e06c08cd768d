#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/result.h"
#include "motley/graph/graph.h"

namespace motley::plan {

/// Devices that keep some parameters that several regions hold. Each owner keeps consecutive rows
/// of each such parameter in proportion to its share: it sums their gradients, keeps their
/// optimizer states, updates them, and sends the new values to the other holders. One owner is a
/// parameter server, equal shares are ZeRO's first stage. A holder without a share owns only rows
/// that no other holder has. Only holders of a parameter own its rows; if none of them has a share,
/// and for optimizers that read a parameter as a whole (lamb, adafactor, muon), every holder sums
/// and updates all of it.
struct Owners {
  std::vector<std::string> parameters;  ///< shell patterns of names, as in a recipe
  std::map<DeviceId, double> shares;    ///< each >= 0, not all 0
  bool operator==(const Owners&) const = default;
};

/// Returns the index of each parameter's entry, by its name; parameters without one are left out.
/// Usage errors (plan.owners): a pattern that matches no parameter, a parameter of two entries.
Result<std::map<std::string, std::size_t>> find_owners(const std::vector<Owners>& owners,
                                                       const graph::Graph& graph);

}  // namespace motley::plan
