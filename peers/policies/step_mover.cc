#include "peers/policies/step_mover.h"

#include <algorithm>

namespace motley::peers {
namespace {

/// Samples that LB-BSP moves at a time.
constexpr std::int64_t kMoved = 5;

}  // namespace

adapt::Baseline::Wish StepMover::wish(const policy::StepSeen& seen,
                                      const std::vector<std::int64_t>& now) {
  std::size_t slow = now.size(), fast = now.size();
  std::vector<double> seconds(now.size(), 0.0);
  for (std::size_t i = 0; i < now.size(); ++i) {
    for (const policy::DeviceStep& device : seen.devices)
      if (device.device == devices()[i].device) seconds[i] = device.end;
    if (now[i] == 0) continue;
    if (now[i] > devices()[i].least && (slow == now.size() || seconds[i] > seconds[slow])) slow = i;
    if (now[i] < devices()[i].most && (fast == now.size() || seconds[i] < seconds[fast])) fast = i;
  }
  if (slow == now.size() || fast == now.size() || slow == fast) return {};
  const std::int64_t moved =
      std::min({kMoved, now[slow] - devices()[slow].least, devices()[fast].most - now[fast]});
  const auto count = static_cast<double>(moved);
  const double of_slow = seconds[slow] / static_cast<double>(now[slow]),
               of_fast = seconds[fast] / static_cast<double>(now[fast]);
  if (seconds[fast] + count * of_fast >= seconds[slow] - count * of_slow) return {};
  std::vector<std::int64_t> samples = now;
  samples[slow] -= moved;
  samples[fast] += moved;
  return {samples, "from the slowest device to the fastest"};
}

}  // namespace motley::peers
