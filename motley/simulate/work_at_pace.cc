#include "motley/simulate/work_at_pace.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace motley::simulate {
namespace {

/// The first piece that begins after a time.
auto piece_after(const std::vector<Pace>& pace, Nanoseconds now) {
  return std::upper_bound(pace.begin(), pace.end(), now,
                          [](Nanoseconds time, const Pace& piece) { return time < piece.from; });
}

}  // namespace

Nanoseconds end_at_pace(const std::vector<Pace>& pace, Nanoseconds now, double work) {
  auto next = piece_after(pace, now);
  double factor = next == pace.begin() ? 1 : std::prev(next)->factor;
  for (; next != pace.end(); ++next) {
    const double done = static_cast<double>(next->from - now) / factor;
    if (done >= work) break;
    work -= done;
    now = next->from;
    factor = next->factor;
  }
  return now + std::llround(work * factor);
}

double work_between(const std::vector<Pace>& pace, Nanoseconds from, Nanoseconds until) {
  auto next = piece_after(pace, from);
  double factor = next == pace.begin() ? 1 : std::prev(next)->factor, work = 0;
  for (; next != pace.end() && next->from < until; ++next) {
    work += static_cast<double>(next->from - from) / factor;
    from = next->from;
    factor = next->factor;
  }
  return work + static_cast<double>(until - from) / factor;
}

}  // namespace motley::simulate
