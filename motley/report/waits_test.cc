#include "motley/report/waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::report {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

trace::Trace parse(const std::string& text) {
  return trace::parse_trace("motley.trace/1\nsource " + text, "test").value();
}

// b computes until 60, a until 40. Each enters the measured exchange on its own arrival; both leave
// at 65. a waits 20 for b; 5 are the exchange's own.
TEST(Waits, AMeasuredExchangeBeginsWhenTheLastMemberComes) {
  const trace::Trace trace = parse(R"(measured
device "a:0"
name ^0 "aten::mm"
name ^1 "motley::all_reduce sum"
step 0 0 100 peak 0
compute 0 ^0 0 40
compute 0 ^0 65 100
transfer 0 ^1 40 65 bytes 8
device "b:0"
name ^0 "aten::mm"
name ^1 "motley::all_reduce sum"
step 0 0 100 peak 0
compute 0 ^0 0 60
compute 0 ^0 65 90
transfer 0 ^1 60 65 bytes 8
)");
  const std::vector<Wait> waits = find_waits(trace);
  EXPECT_THAT(waits, ElementsAre(Wait{0, 1, 0, 40, 60}));
  const std::vector<DeviceTimes> times = sum_times(trace, waits);
  EXPECT_EQ(times[0], (DeviceTimes{1, 75, 20, 5, {0, 20}}));
  EXPECT_EQ(times[1], (DeviceTimes{1, 85, 0, 15, {0, 0}}));
}

// The same simulated: the exchange begins for both when b, which computed until then, arrives.
TEST(Waits, ASimulatedExchangeIsLateByWhoComputedLast) {
  const trace::Trace trace = parse(R"(predicted
device "a:0"
name ^0 "aten::mm"
name ^1 "motley::all_reduce sum"
step 0 0 65 peak 0
compute 0 ^0 0 40
transfer 0 ^1 60 65 bytes 8
device "b:0"
name ^0 "aten::mm"
name ^1 "motley::all_reduce sum"
step 0 0 65 peak 0
compute 0 ^0 0 60
transfer 0 ^1 60 65 bytes 8
)");
  EXPECT_THAT(find_waits(trace), ElementsAre(Wait{0, 1, 0, 40, 60}));
}

// The second stage has nothing to do until 55; the first computed until 50 what it then sends.
TEST(Waits, AReceiveIsLateByWhoComputedMeanwhile) {
  const trace::Trace trace = parse(R"(predicted
device "a:0"
name ^0 "aten::mm"
name ^1 "motley::send h.1"
step 0 0 100 peak 0
compute 0 ^0 0 50
peer 0 ^1 50 55 bytes 8
device "b:0"
name ^0 "motley::receive h.1"
name ^1 "aten::mm"
step 0 0 100 peak 0
compute 0 ^1 55 100
peer 0 ^0 50 55 bytes 8
)");
  EXPECT_THAT(find_waits(trace), ElementsAre(Wait{1, 0, 0, 0, 50}));
}

// c computes longest while b waits for what a sends; what b forwards at once ends later.
TEST(Waits, AReceiveIsLateByWhoSendsIt) {
  const trace::Trace trace = parse(R"(predicted
device "a:0"
name ^0 "aten::mm"
name ^1 "motley::send h.1"
step 0 0 100 peak 0
compute 0 ^0 0 50
peer 0 ^1 50 60 bytes 8
device "b:0"
name ^0 "motley::receive h.1"
name ^1 "aten::mm"
name ^2 "motley::send h.0"
step 0 0 100 peak 0
compute 0 ^1 0 20
compute 0 ^1 60 100
peer 0 ^0 10 60 bytes 8
peer 0 ^2 20 70 bytes 8
device "c:0"
name ^0 "aten::mm"
step 0 0 100 peak 0
compute 0 ^0 0 58
compute 0 ^0 58 100
)");
  const Peers peers = {{-1, 1}, {0, -1, 2}, {-1}};
  EXPECT_THAT(find_waits(trace, peers), Contains(Wait{1, 0, 0, 20, 50}));
  EXPECT_THAT(find_waits(trace), Contains(Wait{1, 2, 0, 20, 58}));
}

TEST(Waits, PausesWithoutAnExchangeAreTheDevicesOwn) {
  const trace::Trace trace = parse(R"(measured
device "a:0"
name ^0 "aten::mm"
step 0 0 100 peak 0
compute 0 ^0 0 40
compute 0 ^0 60 100
device "b:0"
name ^0 "aten::mm"
step 0 0 100 peak 0
compute 0 ^0 0 100
)");
  EXPECT_THAT(find_waits(trace), IsEmpty());
  EXPECT_EQ(sum_times(trace, {})[0], (DeviceTimes{1, 80, 0, 20, {0, 0}}));
}

}  // namespace
}  // namespace motley::report
