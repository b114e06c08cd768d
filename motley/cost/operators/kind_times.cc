#include "motley/cost/operators/kind_times.h"

#include <algorithm>

namespace motley::cost {
Seconds kind_seconds(const cluster::PlanningKind& kind, DType dtype, const OperatorWork& work,
                     const KindEfficiency& efficiency) {
  if (work.launches == 0) return Seconds(0);
  double seconds = work.bytes / (kind.memory_bandwidth.value * efficiency.bytes);
  if (const auto rate = cluster::peak_rate(kind, dtype))
    seconds += work.flops / (rate->value * efficiency.flops);
  return Seconds(std::max(efficiency.launch.value * work.launches, seconds));
}

TimeSource::Answer KindTimes::answer(std::string_view /*name*/, DType dtype,
                                     const OperatorWork& work) const {
  return {kind_seconds(kind_, dtype, work, efficiency_), Bytes(0)};
}

}  // namespace motley::cost
