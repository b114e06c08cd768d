#include "motley/run/worker_device.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley::run {

double WorkerDevice::speed_at(double seconds) const {
  double factor = 1;
  for (const Slowness& each : slow)
    if (seconds >= each.from && seconds < each.until) factor *= each.factor;
  return std::clamp(speed / factor, 1e-6, 1.0);
}

Result<void> WorkerDevice::check(const std::string& where) const {
  const bool is_sound = (kind == "cpu" || kind == "cuda") && threads >= 1 && local_index >= 0 &&
                        speed > 0 && speed <= 1 && (!memory || memory->value > 0) &&
                        (!rate || *rate > 0) && (!latency || *latency >= 0);
  if (is_sound) return {};
  return usage_error("run.job", fmt::format("{}: device '{}' has a value out of range, wanted "
                                            "kind cpu or cuda, threads >= 1, speed in (0, 1], "
                                            "memory, rate > 0, latency >= 0",
                                            where, name));
}

}  // namespace motley::run
