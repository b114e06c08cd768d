#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/links/collective_curve.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// Curves of collectives, fitted (fit_collective) for each operator, backend, route and number of
/// ranks that was measured at two sizes or more. Numbers of ranks in between use the fit_transport
/// of them all; others are an error that names the key. One rank takes 0. Without own measurements:
/// - an all-gather, reduce-scatter or all-to-all takes the time of an all-reduce of half the bytes,
///   because a ring moves (n-1)/n of its bytes for it and 2 (n-1)/n for an all-reduce;
/// - a send takes the time of an all-reduce of its bytes among two ranks;
/// - every method takes the time of the native one.
class CollectiveTimes {
 public:
  static Result<CollectiveTimes> build(const ProfileStore& store);
  Result<Seconds> at(std::string_view op, const std::string& route, int ranks, Bytes bytes,
                     std::string_view backend = "gloo") const;
  /// Returns the curve itself; that of an all-reduce if nothing was measured.
  Result<CollectiveCurve> curve(std::string_view op, const std::string& route, int ranks,
                                std::string_view backend = "gloo") const;

  /// Extrapolates measured curves to all numbers of ranks up to `ranks`, like a ring, which for B
  /// bytes among n ranks sends n - 1 messages and (n - 1)/n B per rank.
  void reach(int ranks);
  /// Returns the fastest curve over all routes at some bytes; none if nothing is known.
  std::optional<CollectiveCurve> fastest(std::string_view op, int ranks, std::string_view backend,
                                         Bytes bytes) const;
  /// Uses a line for an operator that was not measured.
  void assume(std::string_view op, const std::string& route, int ranks, std::string_view backend,
              Affine line);

 private:
  struct Fits {
    std::map<int, SizeCurve> curves;  ///< by ranks
    std::optional<TransportFit> transport;
  };
  Result<CollectiveCurve> find_measured(std::string_view op, const std::string& route, int ranks,
                                        std::string_view backend) const;
  std::map<std::string, Fits> fits_;  // "op|backend|route"
};

/// Returns the collective of an operator's name, such as "motley::all_gather.grouped".
Collective collective_of(std::string_view name);

}  // namespace motley::cost
