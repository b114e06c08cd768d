#include "motley/control/rehearsal/noise_course.h"

#include <gtest/gtest.h>

namespace motley::control {
namespace {

TEST(NoiseCourse, IsStraightBetweenPoints) {
  const auto course = parse_noise_course("0:200,1000:600,3000:500");
  ASSERT_TRUE(course) << course.error().message;
  EXPECT_EQ(course->at(0), 200);
  EXPECT_EQ(course->at(250), 300);
  EXPECT_EQ(course->at(2000), 550);
  EXPECT_EQ(course->at(9000), 500);
  EXPECT_EQ(parse_noise_course("400")->at(123), 400);
  EXPECT_EQ(parse_noise_course("100:400")->at(0), 400);
}

TEST(NoiseCourse, SaysWhatIsWanted) {
  for (const char* text : {"", "x", "-1", "0:1,0:2", "5:1,3:2", "1:2:3", "400,500", "0:inf"}) {
    const auto course = parse_noise_course(text);
    ASSERT_FALSE(course) << text;
    EXPECT_EQ(course.error().message,
              "--noise-scale: found '" + std::string(text) +
                  "', wanted a number of samples, or such after rising numbers of samples taken: "
                  "0:200,20000:1500");
  }
}

}  // namespace
}  // namespace motley::control
