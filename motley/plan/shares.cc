#include "motley/plan/shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace motley::plan {
namespace {

constexpr std::size_t kMostNamed = 8;  // more parts are summed up by their range

}  // namespace

std::vector<std::int64_t> round_shares(const std::vector<double>& shares, std::int64_t extent) {
  const double total = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::int64_t> parts;
  std::vector<double> remainders;
  std::int64_t left = extent;
  for (const double share : shares) {
    const double ideal = static_cast<double>(extent) * (share / total);
    parts.push_back(static_cast<std::int64_t>(ideal));
    remainders.push_back(ideal - std::floor(ideal));
    left -= parts.back();
  }
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++parts[order[i]];
  return parts;
}

std::string parts_text(const std::vector<std::int64_t>& parts) {
  if (parts.size() <= kMostNamed) return fmt::format("{}", fmt::join(parts, ":"));
  const auto [least, most] = std::minmax_element(parts.begin(), parts.end());
  return *least == *most ? fmt::format("{}", *least) : fmt::format("{} to {}", *least, *most);
}

std::string samples_text(const std::vector<std::int64_t>& samples) {
  if (samples.size() <= kMostNamed) return parts_text(samples);
  return fmt::format("{} devices, {} each", samples.size(), parts_text(samples));
}

}  // namespace motley::plan
