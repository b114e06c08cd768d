#include "motley/base/exact_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace motley {
namespace {

TEST(ExactMathTest, PowersAreThoseOfRepeatedProducts) {
  EXPECT_EQ(exact_power(0.9, 0), 1);
  EXPECT_EQ(exact_power(0.5, 10), 1.0 / 1024);
  EXPECT_EQ(exact_power(3, 5), 243);
  EXPECT_NEAR(exact_power(0.999, 100000), std::pow(0.999, 100000), 1e-55);
}

TEST(ExactMathTest, CosinesAreThoseOfTheLibraryToTheirLastDigits) {
  EXPECT_EQ(exact_cos_pi(0), 1);
  EXPECT_EQ(exact_cos_pi(1), -1);
  EXPECT_EQ(exact_cos_pi(0.5), 0);
  for (int i = 0; i <= 10000; ++i) {
    const double x = i / 10000.0;
    EXPECT_NEAR(exact_cos_pi(x), std::cos(std::numbers::pi * x), 4e-16) << x;
  }
}

}  // namespace
}  // namespace motley
