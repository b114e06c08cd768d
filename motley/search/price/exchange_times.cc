#include "motley/search/price/exchange_times.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "motley/base/check.h"
#include "motley/program/parts.h"

namespace motley::search {
namespace {

/// bytes; curves are one or two lines, and only those least at one of these sizes are kept
constexpr double kSizes[] = {0,       1 << 10, 1 << 13, 1 << 16, 1 << 19,
                             1 << 22, 1 << 25, 1 << 28, 1e12};

}  // namespace

double least_seconds(const std::vector<cost::CollectiveCurve>& curves, double bytes) {
  double least = std::numeric_limits<double>::infinity();
  for (const cost::CollectiveCurve& curve : curves) least = std::min(least, curve.at(bytes).value);
  return least;
}

bool ExchangeTimes::is_alone() const {
  if (groups_.empty()) return group_.size() < 2;
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const ExchangeTimes* group) { return group->is_alone(); });
}

Result<ExchangeTimes::Curves> ExchangeTimes::find_curves(std::string_view name) const {
  if (groups_.empty()) return model_->collective_curves(name, group_);
  Curves curves;
  std::vector<std::array<double, std::size(kSizes)>> seen;
  for (ExchangeTimes* group : groups_) {
    const Result<Curves>& own = group->curves(name);
    if (!own && curves.empty() && group == groups_.back()) return own;
    if (!own) continue;
    for (const cost::CollectiveCurve& curve : *own) {
      std::array<double, std::size(kSizes)> at{};
      for (std::size_t i = 0; i < at.size(); ++i) at[i] = curve.at(kSizes[i]).value;
      const bool is_more = std::any_of(seen.begin(), seen.end(), [&](const auto& known) {
        return std::equal(known.begin(), known.end(), at.begin(), std::less_equal<>());
      });
      if (is_more) continue;
      seen.push_back(at);
      curves.push_back(curve);
    }
  }
  return curves;
}

const Result<ExchangeTimes::Curves>& ExchangeTimes::curves(std::string_view name) {
  auto known = known_.find(name);
  if (known == known_.end()) known = known_.emplace(name, find_curves(name)).first;
  return known->second;
}

Result<double> ExchangeTimes::find(std::string_view name, double bytes) {
  if (is_alone()) return 0.0;
  const Result<Curves>& known = curves(name);
  if (!known) return tl::make_unexpected(known.error());
  return least_seconds(*known, bytes);
}

double ExchangeTimes::at(std::string_view name, double bytes) {
  return find(name, bytes).value_or(std::numeric_limits<double>::infinity());
}

FastestExchange ExchangeTimes::fastest(std::string_view op, const ExchangeBytes& bytes) {
  FastestExchange best{std::numeric_limits<double>::infinity()};
  for (const ExchangeMethod method : program::methods_of(op)) {
    const double moved = method == ExchangeMethod::kGrouped ? bytes.grouped : bytes.direct;
    const double seconds = at(program::collective_name(op, method), moved);
    if (seconds < best.seconds) best = {seconds, method};
  }
  return best;
}

synth::ExchangeWays fastest_ways(const program::Program& program, ExchangeTimes& times) {
  return synth::choose_methods(
      program, [&](std::string_view name, double bytes) { return times.at(name, bytes); });
}

Result<synth::ExchangeWays> fastest_ways(
    const std::vector<std::int64_t>& numbers,
    const std::function<Result<program::Program>(std::int64_t)>& lower, ExchangeTimes& times) {
  MOTLEY_CHECK(!numbers.empty());
  std::optional<synth::ExchangeWays> ways;
  for (const std::int64_t number : numbers) {
    MOTLEY_ASSIGN(const program::Program program, lower(number));
    synth::ExchangeWays chosen = fastest_ways(program, times);
    ways = ways ? synth::common_ways(*std::move(ways), chosen) : std::move(chosen);
  }
  return *std::move(ways);
}

}  // namespace motley::search
