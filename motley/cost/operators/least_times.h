#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "motley/cost/operators/time_source.h"

namespace motley::cost {

/// Lower bounds of a source's times of operators in some programs and at batches between theirs:
/// `times`, multiplied per operator name by the least ratio found, if below 1. Requires `times`
/// convex in the work, and a source that is linear between the programs or equals `times`.
class LeastTimes : public WorkTimes {
 public:
  LeastTimes(std::shared_ptr<const graph::Graph> graph, std::shared_ptr<const WorkTimes> times,
             const std::vector<program::DeviceProgram>& programs, const TimeSource& source);
  Answer answer(std::string_view name, DType dtype, const OperatorWork& work) const override;

 private:
  std::shared_ptr<const WorkTimes> times_;
  std::map<std::string, double, std::less<>> ratios_;  // by operator; below 1
};

}  // namespace motley::cost
