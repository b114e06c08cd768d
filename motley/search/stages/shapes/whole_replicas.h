#pragma once

#include <cstdint>
#include <vector>

namespace motley::search {

/// A configuration that may be used any number of times.
struct ShapeOffer {
  std::int64_t samples = 0;  ///< per replica
  std::vector<int> devices;  ///< by pool
};

/// Returns the number of replicas per configuration with the most samples together, within the
/// devices of each pool. Exact, by a table over sets of devices, if their number times that of
/// undominated offers is at most 16 million. With more: the fractional optimum (PackingLp) rounded
/// down, less one of each, and the rest filled by a depth-first search, best value for the devices'
/// prices first, limited in nodes. Deterministic.
std::vector<int> choose_replicas(const std::vector<ShapeOffer>& offers,
                                 const std::vector<int>& devices);

}  // namespace motley::search
