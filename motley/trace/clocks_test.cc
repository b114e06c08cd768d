#include "motley/trace/clocks.h"

#include <gtest/gtest.h>

namespace motley::trace {
namespace {

/// Two devices, one step each: begin and end of the step, and ends of its two exchanges.
Trace two_devices(const std::string& exchange) {
  return parse_trace(
             "motley.trace/1\nsource measured\n"
             "device \"a:0\"\nname ^0 \"" +
                 exchange + "\"\nname ^1 \"" + exchange +
                 "\"\n"
                 "step 0 5 40 peak 1\n"
                 "transfer 0 ^0 6 10 bytes 8\ntransfer 0 ^1 12 20 bytes 8\n"
                 "device \"b:0\"\nname ^0 \"" +
                 exchange + "\"\nname ^1 \"" + exchange +
                 "\"\n"
                 "step 0 1000 1030 peak 1\n"
                 "transfer 0 ^0 1007 1010 bytes 8\ntransfer 0 ^1 1013 1021 bytes 8\n",
             "t")
      .value();
}

TEST(AlignClocks, TheEndsOfCollectivesMeet) {
  Trace trace = two_devices("motley::all_reduce bucket");
  align_clocks(trace, {"", "b"});
  // The ends differ by 1000 and 1001; the upper median counts. Then b's step begins first, at -1.
  EXPECT_EQ(trace.steps[1].begin, 0);
  EXPECT_EQ(trace.steps[0].begin, 6);
  EXPECT_EQ(trace.intervals[1].end, 21);
  EXPECT_EQ(trace.intervals[3].end, 21);
  EXPECT_TRUE(verify_trace(trace, "t"));
}

TEST(AlignClocks, OneClockKeepsItsTimes) {
  Trace trace = two_devices("motley::all_reduce bucket");
  align_clocks(trace, {"a", "a"});
  EXPECT_EQ(trace.steps[0].begin, 0);  // distance to the other unchanged
  EXPECT_EQ(trace.steps[1].begin, 995);
}

TEST(AlignClocks, WithoutCollectivesTheStepsEndTogether) {
  Trace trace = two_devices("motley::send");
  align_clocks(trace, {"a", "b"});
  EXPECT_EQ(trace.steps[0].end, trace.steps[1].end);
}

TEST(AlignClocks, AnEmptyTraceStaysSo) {
  Trace trace;
  align_clocks(trace, {});
  EXPECT_EQ(trace, Trace{});
}

}  // namespace
}  // namespace motley::trace
