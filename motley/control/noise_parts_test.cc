#include "motley/control/noise_parts.h"

#include <gtest/gtest.h>

#include "motley/base/json.h"

namespace motley::control {
namespace {

Json said_squares(std::int64_t samples, double own, double whole) {
  return {{"samples", samples}, {"own", own}, {"whole", whole}};
}

// Ranks report in any order; the sum is that of the first of them.
TEST(NoiseParts, AreOneObservationWhenAllRanksHaveSaidTheirs) {
  NoiseParts parts;
  EXPECT_FALSE(parts.of_step(7, 2));
  parts.add(3, said_squares(10, 0.5, 0.25000001));
  EXPECT_FALSE(parts.of_step(7, 2));
  parts.add(1, said_squares(20, 0.75, 0.25));
  EXPECT_EQ(
      parts.of_step(7, 2),
      (policy::NoiseSeen{.step = 7, .squared_norm = 0.25, .pieces = {{20, 0.75}, {10, 0.5}}}));
}

}  // namespace
}  // namespace motley::control
