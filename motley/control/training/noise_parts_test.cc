#include "motley/control/training/noise_parts.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "motley/base/json.h"

namespace motley::control {
namespace {

Json said_squares(const std::vector<std::pair<std::int64_t, double>>& pieces, double whole) {
  return {{"pieces", pieces}, {"whole", whole}};
}

// Ranks report in any order; the first rank's sum counts.
TEST(NoiseParts, AreOneObservationWhenAllRanksHaveSaidTheirs) {
  NoiseParts parts;
  EXPECT_FALSE(parts.of_step(7, 2));
  parts.add(3, said_squares({{10, 0.5}}, 0.25000001));
  EXPECT_FALSE(parts.of_step(7, 2));
  parts.add(1, said_squares({{20, 0.75}}, 0.25));
  EXPECT_EQ(
      parts.of_step(7, 2),
      (policy::NoiseSeen{.step = 7, .squared_norm = 0.25, .pieces = {{20, 0.75}, {10, 0.5}}}));
}

// A single device reports the squares of its micro-batches.
TEST(NoiseParts, AreOfMicroBatches) {
  NoiseParts parts;
  parts.add(0, said_squares({{11, 0.5}, {10, 0.75}}, 0.25));
  EXPECT_EQ(
      parts.of_step(7, 1),
      (policy::NoiseSeen{.step = 7, .squared_norm = 0.25, .pieces = {{11, 0.5}, {10, 0.75}}}));
}

}  // namespace
}  // namespace motley::control
