#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::elastic {

/// When there were no spot machines in a zone, learned while it is seen: how soon there are some
/// again.
class SpotGaps {
 public:
  /// From now on there are none, or some. Times do not go back.
  void begin(Seconds now);
  void end(Seconds now);
  /// Gaps over the time in them, with one of four hours before any is seen. That is long on
  /// purpose: the mean rate of few gaps understates how long the next one may take.
  double returns_per_second(Seconds now) const;

  /// {"gaps": [seconds], "gap_since": seconds or null}
  Json to_json() const;
  /// Usage error `policy.state`.
  static Result<SpotGaps> from_json(const Json& json, const std::string& where);

 private:
  std::vector<double> gaps_;
  std::optional<Seconds> since_;
};

}  // namespace motley::elastic
