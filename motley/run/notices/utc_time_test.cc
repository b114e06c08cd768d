#include "motley/run/notices/utc_time.h"

#include <gtest/gtest.h>

#include <string>

namespace motley::run {
namespace {

TEST(UtcTime, BothFormsAreSecondsSince1970) {
  EXPECT_EQ(find_utc_time("1970-01-01T00:00:00Z"), Seconds(0));
  // 2000-03-01 is day 11,017: 30 years of 365 days, the leap days of 1972 to 1996 (7), 31 days of
  // January and 29 of February.
  EXPECT_EQ(find_utc_time("2000-03-01T01:02:03Z"), Seconds(11017 * 86400.0 + 3723));
  EXPECT_EQ(find_utc_time("Wed, 01 Mar 2000 01:02:03 GMT"), Seconds(11017 * 86400.0 + 3723));
  EXPECT_EQ(find_utc_time("1970-01-01T00:00:01.25Z"), Seconds(1.25));
}

TEST(UtcTime, WhatIsNoTimeIsNone) {
  for (const std::string text : {"",
                                 "Z",
                                 "1970-01-01",
                                 "1970-01-01T00:00:00",
                                 "1970-01-01 00:00:00Z",
                                 "1970-1-1T00:00:00Z",
                                 "1970-13-01T00:00:00Z",
                                 "1970-02-29T00:00:00Z",
                                 "1970-01-01T24:00:00Z",
                                 "1970-01-01T00:60:00Z",
                                 "1970-01-01T00:00:00.Z",
                                 "1970-01-01T00:00:00.1e9Z",
                                 "1970-01-01T00:00:00Zx",
                                 "-970-01-01T00:00:00Z",
                                 "+970-01-01T00:00:00Z",
                                 "Thu, 01 Jan 1970 00:00:00",
                                 "Thu, 01 Foo 1970 00:00:00 GMT",
                                 "Thu, 32 Jan 1970 00:00:00 GMT",
                                 "Thu, 01 Jan 1970 00:00:00 CET",
                                 "Thu,"})
    EXPECT_FALSE(find_utc_time(text)) << text;
}

TEST(UtcTime, NowIsAfterThisWasWritten) { EXPECT_GT(utc_now(), Seconds(56 * 365 * 86400.0)); }

}  // namespace
}  // namespace motley::run
