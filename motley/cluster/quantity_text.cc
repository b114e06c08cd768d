#include "motley/cluster/quantity_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "motley/base/text.h"

namespace motley::cluster {
namespace {

using Unit = std::pair<std::string_view, double>;  // listed largest first

template <std::size_t kCount>
std::string short_text(double value, const std::array<Unit, kCount>& units) {
  std::size_t best = 0;
  while (best + 1 < kCount && value < units[best].second * (1 - 1e-9)) ++best;
  return fmt::format("{:.6g}{}", value / units[best].second, units[best].first);
}

}  // namespace

std::string short_rate(BytesPerSecond rate) {
  constexpr std::array<Unit, 3> kUnits = {
      {{"Gbps", 1e9 / 8}, {"Mbps", 1e6 / 8}, {"kbps", 1e3 / 8}}};
  return short_text(rate.value, kUnits);
}

std::string short_seconds(Seconds seconds) {
  constexpr std::array<Unit, 3> kUnits = {{{"s", 1.0}, {"ms", 1e-3}, {"us", 1e-6}}};
  return seconds.value == 0 ? "0s" : short_text(seconds.value, kUnits);
}

std::string print_bytes(Bytes bytes) {
  constexpr std::array<std::pair<std::string_view, int>, 3> kUnits = {
      {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}};
  for (const auto& [unit, shift] : kUnits) {
    const std::int64_t size = std::int64_t{1} << shift;
    if (bytes.value > 0 && bytes.value % size == 0) {
      return fmt::format("{}{}", bytes.value / size, unit);
    }
  }
  return fmt::format("{}B", bytes.value);
}

std::string print_rate(BytesPerSecond rate) {
  const std::string text = short_rate(rate);
  return parse_rate(text) == rate ? text : print_float(rate.value);
}

std::string print_seconds(Seconds seconds) {
  const std::string text = short_seconds(seconds);
  return parse_seconds(text) == seconds ? text : print_float(seconds.value);
}

}  // namespace motley::cluster
