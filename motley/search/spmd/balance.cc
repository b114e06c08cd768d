#include "motley/search/spmd/balance.h"

#include <algorithm>
#include <limits>

namespace motley::search {
namespace {

std::vector<double> capped_shares(const std::vector<double>& speeds, double cap) {
  double sum = 0;
  for (const double speed : speeds) sum += std::min(speed, cap);
  std::vector<double> shares;
  for (const double speed : speeds) shares.push_back(std::min(speed, cap) / sum);
  return shares;
}

double seconds_of(const std::vector<double>& shares, const std::vector<double>& speeds,
                  double shared, double padded) {
  double slowest = 0, largest = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    slowest = std::max(slowest, shares[i] / speeds[i]);
    largest = std::max(largest, shares[i]);
  }
  return shared * slowest + padded * largest * static_cast<double>(shares.size());
}

}  // namespace

std::vector<double> balance(const std::vector<double>& speeds, double shared, double padded) {
  std::vector<double> caps = speeds;
  std::sort(caps.begin(), caps.end());
  caps.erase(std::unique(caps.begin(), caps.end()), caps.end());
  std::vector<double> best;
  double least = std::numeric_limits<double>::infinity();
  for (const double cap : caps) {
    std::vector<double> shares = capped_shares(speeds, cap);
    const double seconds = seconds_of(shares, speeds, shared, padded);
    if (seconds >= least) continue;
    least = seconds;
    best = std::move(shares);
  }
  return best;
}

}  // namespace motley::search
