#include "motley/control/run_waits.h"

#include <gtest/gtest.h>

#include "motley/program/program_text.h"

namespace motley::control {
namespace {

program::Program two_ranks() {
  program::Program program;
  program.groups = {{{Rank(0), Rank(1)}}};
  program.devices = {{.device = "a:0"}, {.device = "b:0"}};
  for (program::DeviceProgram& device : program.devices) {
    program::Instruction sum{.lane = Lane::kTransfer, .op = "motley::all_reduce"};
    sum.group = GroupId(0);
    device.instructions = {{.op = "aten::mm"}, sum};
  }
  program.devices[0].instructions.push_back({.lane = Lane::kPeer,
                                             .op = std::string(program::kSend),
                                             .arguments = {{BufferId(0)}, {std::int64_t{1}}}});
  program.devices[1].instructions.push_back({.lane = Lane::kPeer,
                                             .op = std::string(program::kReceive),
                                             .arguments = {{std::int64_t{0}}}});
  return program;
}

trace::Trace measured(const std::string& first_name = "aten::mm") {
  const std::string name = "name ^0 \"" + first_name + "\"\nname ^1 \"motley::all_reduce x\"\n";
  return trace::parse_trace(
             "motley.trace/1\nsource measured\n"
             "device \"a:0\"\n" +
                 name +
                 "name ^2 \"motley::send\"\n"
                 "step 0 0 100 peak 1\n"
                 "compute 0 ^0 0 10\ntransfer 0 ^1 10 70 bytes 8\npeer 0 ^2 75 80 bytes 8\n"
                 "device \"b:0\"\n" +
                 name +
                 "name ^2 \"motley::receive\"\n"
                 "step 0 0 100 peak 1\n"
                 "compute 0 ^0 0 60\ntransfer 0 ^1 60 70 bytes 8\npeer 0 ^2 0 81 bytes 8\n",
             "t")
      .value();
}

TEST(LeaveOutWaits, AnExchangeBeginsWhenTheLastHasCome) {
  trace::Trace trace = measured();
  leave_out_waits(two_ranks(), trace);
  ASSERT_TRUE(trace::verify_trace(trace, "t"));
  EXPECT_EQ(trace.intervals[1].begin, 60);  // a arrived at 10
  EXPECT_EQ(trace.intervals[4].begin, 60);
  EXPECT_EQ(trace.intervals[2].begin, 75);
  EXPECT_EQ(trace.intervals[5].begin, 75);  // b waited for it from 0 on
  // Device a: compute 10; waiting 50 for the sum; then the sum 10 and the message 5; then idle.
  const trace::Breakdown parts = trace::break_down(trace)[0];
  EXPECT_EQ(parts.compute, 10);
  EXPECT_EQ(parts.waiting, 50);
  EXPECT_EQ(parts.exposed_communication, 15);
  EXPECT_EQ(parts.total(), 100);
}

TEST(LeaveOutWaits, ATraceOfAnotherProgramStaysAsItIs) {
  trace::Trace trace = measured("aten::addmm");
  leave_out_waits(two_ranks(), trace);
  EXPECT_EQ(trace, measured("aten::addmm"));
}

}  // namespace
}  // namespace motley::control
