#include "motley/search/spmd/exchange_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "motley/program/parts.h"

namespace motley::search {
namespace {

constexpr int kLeast = 0, kMost = 36;  // powers of two of bytes
constexpr double kStraight = 1e-6;     // of a time: as far may a line be from it

double between(const auto& left, const auto& right, double bytes) {
  const double part = (bytes - left.bytes) / (right.bytes - left.bytes);
  return left.seconds + part * (right.seconds - left.seconds);
}

}  // namespace

double ExchangeTimes::at(std::string_view name, double bytes) {
  if (group_.size() < 2) return 0;
  const Knots& line = knots(name);
  if (bytes <= line.front().bytes || line.size() == 1) return line.front().seconds;
  const auto above = std::find_if(line.begin() + 1, line.end() - 1,
                                  [&](const Knot& knot) { return bytes <= knot.bytes; });
  return between(*(above - 1), *above, bytes);
}

QuickestExchange ExchangeTimes::quickest(std::string_view op, const ExchangeBytes& bytes) {
  QuickestExchange best{std::numeric_limits<double>::infinity()};
  for (const ExchangeMethod method : program::methods_of(op)) {
    const double moved = method == ExchangeMethod::kGrouped ? bytes.grouped : bytes.direct;
    const double seconds = at(program::collective_name(op, method), moved);
    if (seconds < best.seconds) best = {seconds, method};
  }
  return best;
}

const ExchangeTimes::Knots& ExchangeTimes::knots(std::string_view name) {
  const auto known = known_.find(name);
  if (known != known_.end()) return known->second;
  Knots& made = known_[std::string(name)];
  made.push_back(ask(name, kLeast));
  if (std::isfinite(made.front().seconds)) refine(name, kLeast, kMost, ask(name, kMost), made);
  return made;
}

ExchangeTimes::Knot ExchangeTimes::ask(std::string_view name, int exponent) const {
  const auto time = model_.collective_time(name, Bytes(std::int64_t{1} << exponent), group_);
  return {std::ldexp(1.0, exponent), time ? time->value : std::numeric_limits<double>::infinity()};
}

void ExchangeTimes::refine(std::string_view name, int low, int high, const Knot& end,
                           Knots& knots) const {
  if (high - low > 1) {
    const int middle = (low + high) / 2;
    const Knot knot = ask(name, middle);
    if (std::abs(between(knots.back(), end, knot.bytes) - knot.seconds) >
        kStraight * knot.seconds) {
      refine(name, low, middle, knot, knots);
      return refine(name, middle, high, end, knots);
    }
  }
  knots.push_back(end);
}

}  // namespace motley::search
