#include <algorithm>
#include <map>
#include <numeric>

#include "motley/search/stages/passes/generators.h"

namespace motley::search {
namespace {

/// So many replicas of a shape fill its pool.
struct PoolFilling {
  const ReplicaShape* shape = nullptr;
  int count = 0;
};

std::map<std::size_t, std::vector<PoolFilling>> find_fillings(const GeneratorInput& input) {
  const SearchSpace& space = input.space;
  std::map<std::size_t, std::vector<PoolFilling>> fillings;  // by pool
  for (const ReplicaShape& shape : input.shapes) {
    const std::vector<int> devices = space.free.devices(shape);
    const std::size_t pool = space.costs.units()[shape.stages.front().unit].pool();
    const int fits = space.devices[pool] / std::max(1, devices[pool]);
    if (fits > 0 && devices[pool] == std::accumulate(devices.begin(), devices.end(), 0))
      fillings[pool].push_back({&shape, fits});
  }
  return fillings;
}

}  // namespace

Result<GeneratedMixes> put_apart(const GeneratorInput& input) {
  if (!input.space.has_few_devices()) return GeneratedMixes();
  const auto fillings = find_fillings(input);
  ReplicaMix mix;
  const auto done_in = [&](double seconds) {
    std::int64_t all = 0;
    mix.parts.clear();
    for (const auto& [pool, choices] : fillings) {
      std::int64_t most = 0;
      PoolFilling best;
      for (const PoolFilling& choice : choices) {
        const std::int64_t does =
            choice.count * input.estimates.supposed_samples(*choice.shape, seconds);
        if (does <= most) continue;
        most = does;
        best = choice;
      }
      if (most > 0) mix.parts.emplace_back(*best.shape, best.count);
      all += most;
    }
    return all;
  };
  const double seconds =
      least_time(input.estimates.least(), input.space.question.global_batch, done_in);
  if (!(seconds < kTooLong) || fillings.empty()) return GeneratedMixes();
  done_in(seconds);
  std::sort(mix.parts.begin(), mix.parts.end());
  return GeneratedMixes{{mix}, {}, 0};
}

}  // namespace motley::search
