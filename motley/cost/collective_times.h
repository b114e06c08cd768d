#pragma once

#include <map>
#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::cost {

/// latency + bytes / bandwidth of a collective, both >= 0, fitted to measurements by relative least
/// squares (of (fit - measured) / measured) for each operator, backend, route and number of ranks,
/// measured at two sizes or more. For ranks in between, both numbers are interpolated; beyond is an
/// error that names the key. One rank takes 0. An all-gather, a reduce-scatter or an all-to-all
/// that was not measured among these ranks takes the latency of an all-reduce and half of its time
/// a byte: by a ring it moves (n-1)/n of its bytes, an all-reduce 2 (n-1)/n. What was measured only
/// as native takes the same of any method.
class CollectiveTimes {
 public:
  static Result<CollectiveTimes> build(const ProfileStore& store);
  Result<Seconds> at(std::string_view op, const std::string& route, int ranks, Bytes bytes,
                     std::string_view backend = "gloo") const;
  struct Line {
    double latency = 0, seconds_per_byte = 0;
  };
  /// The line itself; of what was not measured, half an all-reduce.
  Result<Line> line(std::string_view op, const std::string& route, int ranks,
                    std::string_view backend = "gloo") const;

 private:
  Result<Line> find_measured(std::string_view op, const std::string& route, int ranks,
                             std::string_view backend) const;
  std::map<std::string, std::map<int, Line>> fits_;  // "op|backend|route" -> ranks -> fit
};

}  // namespace motley::cost
