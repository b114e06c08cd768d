#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "motley/cost/operators/time_source.h"

namespace motley::cost {

/// Times by what operators do that are no more than what a source says of the same operators in
/// some programs, and at batches between theirs: those of `times`, of each operator (by name) times
/// the least ratio found, if below 1. For bounds. `times` must be convex in the work and the source
/// on a line between the programs, or be `times` itself.
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
