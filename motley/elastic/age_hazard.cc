#include "motley/elastic/age_hazard.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace motley::elastic {
namespace {

constexpr std::size_t kPieces = 10;
constexpr std::array<double, kPieces> kPieceHours = {0, 1, 2, 3, 4, 6, 8, 12, 16, 20};

/// Losses and machine-hours in each piece of age; a machine lost within an hour counts half of it.
struct CountedKind {
  std::string_view kind;
  std::array<double, kPieces> lost, hours;
};
constexpr CountedKind kCounted[] = {{"k80",
                                     {33, 0, 9, 1, 1, 6, 2, 14, 0, 6},
                                     {139.5, 123, 118.5, 113.5, 225.5, 215, 420, 400, 360, 351}},
                                    {"p100",
                                     {19, 14, 9, 0, 5, 6, 4, 6, 1, 1},
                                     {110.5, 94, 82.5, 78, 148.5, 139, 260, 244, 227.5, 223.5}},
                                    {"v100",
                                     {38, 11, 3, 8, 2, 0, 1, 4, 0, 2},
                                     {101, 76.5, 69.5, 64, 119, 116, 228.5, 214, 212, 211}}};
constexpr double kPooledHours = 50;
constexpr double kWeightOfLosses = 0.5;

/// Tells whether a kind is `counted`: "v100" and "v100-16g" are a V100.
bool is_of(std::string_view kind, std::string_view counted) {
  return kind.substr(0, kind.find('-')) == counted;
}

}  // namespace

std::size_t piece_of(const std::vector<Seconds>& ages, Seconds age) {
  const auto after = std::upper_bound(ages.begin(), ages.end(), age);
  return after == ages.begin() ? 0 : static_cast<std::size_t>(after - ages.begin()) - 1;
}

std::vector<double> spent_in(const std::vector<Seconds>& ages, Seconds from, Seconds to) {
  std::vector<double> spent(ages.size());
  for (std::size_t i = 0; i < ages.size(); ++i) {
    const Seconds begin = std::max(from, ages[i]);
    const Seconds end = i + 1 < ages.size() ? std::min(to, ages[i + 1]) : to;
    spent[i] = std::max(0.0, (end - begin).value);
  }
  return spent;
}

double AgeHazard::at(Seconds age) const { return per_second[piece_of(ages, age)]; }

double AgeHazard::between(Seconds from, Seconds to) const {
  double sum = 0;
  for (std::size_t i = piece_of(ages, from); i < ages.size() && ages[i] < to; ++i) {
    const Seconds begin = std::max(from, ages[i]);
    const Seconds end = i + 1 < ages.size() ? std::min(to, ages[i + 1]) : to;
    sum += per_second[i] * (end - begin).value;
  }
  return sum;
}

HazardPrior usual_hazard(std::string_view kind) {
  HazardPrior prior;
  for (std::size_t i = 0; i < kPieces; ++i) {
    double lost = 0, hours = 0, own_lost = 0, own_hours = 0;
    for (const CountedKind& counted : kCounted) {
      lost += counted.lost[i];
      hours += counted.hours[i];
      if (!is_of(kind, counted.kind)) continue;
      own_lost = counted.lost[i];
      own_hours = counted.hours[i];
    }
    const double pooled = lost / hours;
    const double per_hour = (own_lost + kPooledHours * pooled) / (own_hours + kPooledHours);
    prior.hazard.ages.push_back(Seconds(3600 * kPieceHours[i]));
    prior.hazard.per_second.push_back(per_hour / 3600);
    prior.losses.push_back(kWeightOfLosses * lost);
  }
  return prior;
}

}  // namespace motley::elastic
