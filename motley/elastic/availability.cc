#include "motley/elastic/availability.h"

#include <fmt/format.h>

#include <algorithm>

namespace motley::elastic {
namespace {

constexpr Seconds kForever{std::numeric_limits<double>::infinity()};

/// Lists 0 and the times of arrivals and departures; ascending, unique.
std::vector<Seconds> changes_of(const std::vector<AvailabilityTrace>& presences) {
  std::vector<Seconds> changes = {Seconds(0)};
  for (const AvailabilityTrace& availability : presences) {
    changes.push_back(availability.from);
    if (availability.until < kForever) changes.push_back(availability.until);
  }
  std::sort(changes.begin(), changes.end());
  changes.erase(std::unique(changes.begin(), changes.end()), changes.end());
  return changes;
}

}  // namespace

Result<std::vector<AvailabilitySpan>> spans_of(const std::vector<AvailabilityTrace>& presences) {
  for (std::size_t i = 0; i < presences.size(); ++i)
    if (const auto& [from, until] = presences[i];
        !(from.value >= 0 && from < kForever && until >= from))
      return usage_error("elastic.availability",
                         fmt::format("worker {}: there from {} s to {} s, wanted 0 <= from <= to",
                                     i, from.value, until.value));
  const std::vector<Seconds> changes = changes_of(presences);
  std::vector<AvailabilitySpan> spans;
  for (std::size_t c = 0; c < changes.size(); ++c) {
    AvailabilitySpan& span = spans.emplace_back();
    span.from = changes[c];
    span.until = c + 1 < changes.size() ? changes[c + 1] : kForever;
    for (std::size_t i = 0; i < presences.size(); ++i)
      if (presences[i].from <= span.from && presences[i].until >= span.until)
        span.present.push_back(i);
  }
  return spans;
}

Result<Seconds> replay(const std::vector<AvailabilityTrace>& presences, double steps,
                       const std::function<double(const std::vector<std::size_t>&)>& speed) {
  MOTLEY_ASSIGN(const std::vector<AvailabilitySpan> spans, spans_of(presences));
  for (const AvailabilitySpan& span : spans) {
    if (!(steps > 0)) return span.from;
    const double rate = span.present.empty() ? 0 : speed(span.present);
    if (!(rate > 0)) continue;
    const Seconds needed = Seconds(steps / rate);
    if (span.from + needed <= span.until) return span.from + needed;
    steps -= rate * (span.until - span.from).value;
  }
  return kForever;
}

}  // namespace motley::elastic
