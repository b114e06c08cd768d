#include "motley/cost/operators/least_times.h"

#include <algorithm>
#include <utility>

namespace motley::cost {

LeastTimes::LeastTimes(std::shared_ptr<const graph::Graph> graph,
                       std::shared_ptr<const WorkTimes> times,
                       const std::vector<program::DeviceProgram>& programs,
                       const TimeSource& source)
    : WorkTimes(std::move(graph)), times_(std::move(times)) {
  for (const program::DeviceProgram& program : programs) {
    const auto said = source.times(program), own = times_->times(program);
    for (std::size_t i = 0; i < said.size(); ++i) {
      if (!said[i] || !own[i] || !(own[i]->seconds.value > 0)) continue;
      double& ratio = ratios_.try_emplace(program.instructions[i].full_name(), 1.0).first->second;
      ratio = std::min(ratio, said[i]->seconds / own[i]->seconds);
    }
  }
}

TimeSource::Answer LeastTimes::answer(std::string_view name, DType dtype,
                                      const OperatorWork& work) const {
  Answer answer = times_->answer(name, dtype, work);
  if (const auto found = ratios_.find(name); found != ratios_.end())
    answer.seconds = answer.seconds * found->second;
  return answer;
}

}  // namespace motley::cost
