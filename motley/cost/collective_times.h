#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/links/collective_fit.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// Seconds of an exchange over its bytes, among a number of ranks that was measured or that lies
/// between two that were. Between them it goes from one's time to the other's as far as the fitted
/// transport does (a ring's messages grow with the ranks, what crosses a port hardly), or in
/// proportion to the ranks where there is none.
struct CollectiveCurve {
  /// Of the fit, at the ranks wanted and the ones measured.
  struct Transports {
    Affine fewer, wanted, more;
  };
  SizeCurve fewer, more;
  double share = 0;  ///< of the way from fewer to more ranks; 0: `fewer` alone
  std::optional<Transports> transports = {};
  double scale = 1;  ///< of the bytes

  Seconds at(double bytes) const;
  /// The line that goes through at(bytes), with the latency of what holds at this size.
  Affine piece(double bytes) const;

 private:
  double way(double bytes) const;
};

/// Curves of collectives, fitted to measurements (fit_collective) for each operator, backend, route
/// and number of ranks measured at two sizes or more; for ranks in between by what fit_transport
/// finds over all of these numbers; beyond is an error that names the key. One rank takes 0. An
/// all-gather, a reduce-scatter or an all-to-all that was not measured among these ranks takes the
/// time of an all-reduce of half the bytes: by a ring it moves (n-1)/n of its bytes, an all-reduce
/// 2 (n-1)/n. A send that was not measured takes the time of an all-reduce of its bytes among the
/// two. What was measured only as native takes the same of any method.
class CollectiveTimes {
 public:
  static Result<CollectiveTimes> build(const ProfileStore& store);
  Result<Seconds> at(std::string_view op, const std::string& route, int ranks, Bytes bytes,
                     std::string_view backend = "gloo") const;
  /// The curve itself; of what was not measured, that of an all-reduce.
  Result<CollectiveCurve> curve(std::string_view op, const std::string& route, int ranks,
                                std::string_view backend = "gloo") const;

  /// So many ranks and fewer are known from now on, of what was measured among any: outside of
  /// those, as around a ring, which for B bytes among n ranks sends n - 1 messages and (n - 1)/n B
  /// a rank.
  void reach(int ranks);
  /// The fastest at some bytes among so many ranks, by whichever route; none: nothing is known.
  std::optional<CollectiveCurve> fastest(std::string_view op, int ranks, std::string_view backend,
                                         Bytes bytes) const;
  /// Takes a line for what was not measured.
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

/// What a collective of this name does; "motley::all_gather.grouped" too.
Collective collective_of(std::string_view name);

}  // namespace motley::cost
