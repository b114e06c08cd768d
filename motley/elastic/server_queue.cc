#include "motley/elastic/server_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace motley::elastic {
namespace {

constexpr std::int64_t kMostMixtures = 1'000'000;

/// Numbers mixtures of workers: digit k of `index`, in base count + 1, is the number of kind k.
/// `strides` are the digits' weights; the last one is the number of mixtures.
std::vector<std::int64_t> strides_of(const std::vector<AsyncWorkers>& workers) {
  std::vector<std::int64_t> strides = {1};
  for (const AsyncWorkers& kind : workers)
    strides.push_back(std::min(kMostMixtures + 1, strides.back() * (kind.count + 1)));
  return strides;
}

Result<void> verify(const std::vector<AsyncWorkers>& workers, Seconds service,
                    std::int64_t servers) {
  if (!(service.value > 0) || servers < 1)
    return usage_error("elastic.server",
                       fmt::format("{} servers with {} s a step, wanted at least one "
                                   "and more than 0 s",
                                   servers, service.value));
  for (const AsyncWorkers& kind : workers)
    if (kind.count < 0 || !(kind.step >= service))
      return usage_error("elastic.server",
                         fmt::format("{} workers with a step of {} s, wanted none or more and at "
                                     "least the server's {} s",
                                     kind.count, kind.step.value, service.value));
  if (const auto mixtures = strides_of(workers).back(); mixtures > kMostMixtures)
    return usage_error("elastic.server",
                       fmt::format("more than {} mixtures of {} kinds of workers; "
                                   "join kinds that are identical",
                                   kMostMixtures, workers.size()));
  return {};
}

/// Returns one worker's rate of each kind in a mixture, 0 for an absent kind.
std::vector<double> rates_in(std::int64_t mixture, const std::vector<AsyncWorkers>& workers,
                             Seconds service, const std::vector<std::int64_t>& strides,
                             const std::vector<double>& found) {
  std::vector<double> rates(workers.size(), 0.0);
  for (std::size_t k = 0; k < workers.size(); ++k) {
    if (mixture / strides[k] % (workers[k].count + 1) == 0) continue;
    const auto without_me = static_cast<std::size_t>(mixture - strides[k]);
    rates[k] = 1 / (workers[k].step.value + service.value * found[without_me]);
  }
  return rates;
}

}  // namespace

Result<ClusterSpeed> estimate_cluster_speed(const std::vector<AsyncWorkers>& workers,
                                            Seconds service, std::int64_t servers) {
  MOTLEY_RETURN_IF_ERROR(verify(workers, service, servers));
  const Seconds visit = service / static_cast<double>(servers);
  std::vector<AsyncWorkers> kinds = workers;
  for (AsyncWorkers& kind : kinds) kind.step -= service - visit;
  const std::vector<std::int64_t> strides = strides_of(kinds);
  std::vector<double> found = {0};  // workers at the server, by mixture
  ClusterSpeed speed{0, std::vector<double>(kinds.size(), 0.0)};
  for (std::int64_t mixture = 1; mixture < strides.back(); ++mixture) {
    speed.of_worker = rates_in(mixture, kinds, visit, strides, found);
    double at_server = 0;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      const auto count = static_cast<double>(mixture / strides[k] % (kinds[k].count + 1));
      const double away = kinds[k].step.value - visit.value;
      if (count > 0) at_server += count * (1 - speed.of_worker[k] * away);
    }
    found.push_back(at_server);
  }
  for (std::size_t k = 0; k < kinds.size(); ++k)
    speed.steps_per_second += static_cast<double>(kinds[k].count) * speed.of_worker[k];
  return speed;
}

}  // namespace motley::elastic
