#include "motley/search/hap/balance.h"

#include <algorithm>
#include <limits>

namespace motley::search {
namespace {

Shares capped_shares(const std::vector<double>& speeds, double cap) {
  double sum = 0;
  for (const double speed : speeds) sum += std::min(speed, cap);
  Shares shares;
  for (const double speed : speeds) shares.push_back(std::min(speed, cap) / sum);
  return shares;
}

}  // namespace

Shares balance(const LinearTime& time, const HapCluster& cluster) {
  std::vector<double> caps = cluster.device_flops;
  std::sort(caps.begin(), caps.end());
  caps.erase(std::unique(caps.begin(), caps.end()), caps.end());
  Shares best;
  const LinearTime variable{.shared_flops = time.shared_flops, .padded_s = time.padded_s};
  double least = std::numeric_limits<double>::infinity();
  for (const double cap : caps) {
    Shares shares = capped_shares(cluster.device_flops, cap);
    const double seconds = variable.seconds(effect_of(shares, cluster));
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(shares);
  }
  return best;
}

}  // namespace motley::search
