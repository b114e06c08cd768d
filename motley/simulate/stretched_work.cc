#include "motley/simulate/stretched_work.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace motley::simulate {
namespace {

auto piece_after(const std::vector<Stretch>& pieces, Nanoseconds now) {
  return std::upper_bound(pieces.begin(), pieces.end(), now,
                          [](Nanoseconds time, const Stretch& piece) { return time < piece.from; });
}

}  // namespace

Nanoseconds end_when_stretched(const std::vector<Stretch>& pieces, Nanoseconds now, double work) {
  auto next = piece_after(pieces, now);
  double factor = next == pieces.begin() ? 1 : std::prev(next)->factor;
  for (; next != pieces.end(); ++next) {
    const double done = static_cast<double>(next->from - now) / factor;
    if (done >= work) break;
    work -= done;
    now = next->from;
    factor = next->factor;
  }
  return now + std::llround(work * factor);
}

double work_between(const std::vector<Stretch>& pieces, Nanoseconds from, Nanoseconds until) {
  auto next = piece_after(pieces, from);
  double factor = next == pieces.begin() ? 1 : std::prev(next)->factor, work = 0;
  for (; next != pieces.end() && next->from < until; ++next) {
    work += static_cast<double>(next->from - from) / factor;
    from = next->from;
    factor = next->factor;
  }
  return work + static_cast<double>(until - from) / factor;
}

}  // namespace motley::simulate
