#pragma once

#include <cstdint>
#include <vector>

namespace motley::search {

/// A shape that may be used any number of times.
struct ShapeOffer {
  std::int64_t samples = 0;  ///< of one replica
  std::vector<int> devices;  ///< by pool
};

/// How many replicas of each shape do the most samples together, within the devices of each pool.
/// Exact, by a table over sets of devices, where these times the offers that no other beats are 16
/// million or fewer; with more: the fractional optimum (PackingLp) rounded down, less one of each,
/// and the rest filled by a search in depth, best value for the devices' prices first, that gives
/// up after a fixed number of nodes. Deterministic.
std::vector<int> choose_replicas(const std::vector<ShapeOffer>& offers,
                                 const std::vector<int>& devices);

}  // namespace motley::search
