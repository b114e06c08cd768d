#include "motley/trace/trace.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "motley/base/random.h"

namespace motley::trace {
namespace {

const std::string kSmall =
    "motley.trace/1\n"
    "source measured\n"
    "device \"a:0\"\n"
    "name ^0 \"aten::mm fc\"\n"
    "name ^1 \"motley::all_reduce bucket 0\"\n"
    "step 0 0 1500 peak 4096\n"
    "compute 0 ^0 0 1000\n"
    "transfer 0 ^1 1000 1500 bytes 8192\n"
    "device \"b:0\"\n";

TEST(TraceText, ReadsAndPrintsAsItWas) {
  const auto trace = parse_trace(kSmall, "t");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->source, Source::kMeasured);
  EXPECT_EQ(trace->names[0][1], "motley::all_reduce bucket 0");
  EXPECT_EQ(trace->intervals[1].bytes, 8192);
  EXPECT_EQ(print_trace(*trace), kSmall);
}

Trace draw_trace(std::uint64_t seed) {
  SplitMix64 random(seed);
  Trace trace;
  for (int device = 0, count = static_cast<int>(random.below(4)); device < count; ++device) {
    trace.devices.push_back("n\"" + std::to_string(device));
    trace.names.push_back({"aten::mm \n", "b"});
    Nanoseconds at = 0;
    for (std::int64_t step = 0; step < 3; ++step, at += 50)
      trace.steps.push_back({device, 2 * step, at, at + 50, step * 7});
    for (const Lane lane : {Lane::kCompute, Lane::kTransfer}) {
      at = 0;
      for (std::uint64_t i = random.below(10); i > 0; --i) {
        const Nanoseconds begin = at + static_cast<Nanoseconds>(random.below(3));
        at = begin + static_cast<Nanoseconds>(random.below(9));
        trace.intervals.push_back({device, lane, static_cast<std::int64_t>(random.below(3)),
                                   InstructionId(static_cast<std::int64_t>(random.below(2))), begin,
                                   at, static_cast<std::int64_t>(random.below(2))});
      }
    }
  }
  return trace;
}

RC_GTEST_PROP(TraceText, ParsePrintIsIdentity, ()) {
  const Trace trace = draw_trace(*rc::gen::arbitrary<std::uint64_t>());
  const auto parsed = parse_trace(print_trace(trace), "t");
  if (!parsed) RC_FAIL(parsed.error().message);
  RC_ASSERT(*parsed == trace);
}

/// Returns the error for a trace of one device with one name and these further lines.
std::string error_of(const std::string& lines) {
  const auto trace =
      parse_trace("motley.trace/1\nsource predicted\ndevice \"a:0\"\nname ^0 \"f\"\n" + lines, "t");
  return trace ? "" : trace.error().code + " " + trace.error().message;
}

TEST(TraceText, RefusesBadItems) {
  EXPECT_EQ(parse_trace("", "t").error().message, "t:1: found '', wanted 'motley.trace/1'");
  EXPECT_EQ(parse_trace("motley.trace/1\n", "t").error().message,
            "t:1: found the end, wanted 'source'");
  EXPECT_EQ(parse_trace("motley.trace/1\nsource felt\n", "t").error().message,
            "t:2: found 'felt', wanted 'predicted' or 'measured'");
  EXPECT_EQ(parse_trace("motley.trace/1\nsource measured\nstep 0\n", "t").error().message,
            "t:3: found 'step 0', wanted 'device'");
  EXPECT_EQ(error_of("name ^2 \"g\"\n"),
            "trace.parse t:5: found '\"g\"', wanted ^1 before this, ids being dense");
  EXPECT_EQ(error_of("compute 0 0 1 2\n"),
            "trace.parse t:5: found '0 1 2', wanted an instruction such as ^3");
  EXPECT_EQ(error_of("step 0 0 5\n"), "trace.parse t:5: found the end of the line, wanted 'peak'");
  EXPECT_EQ(error_of("wait\n"),
            "trace.parse t:5: found 'wait', wanted 'device', 'name', 'step', 'compute', 'transfer' "
            "or 'peer'");
}

TEST(TraceVerify, ReportsEachViolation) {
  EXPECT_EQ(error_of("compute 0 ^0 5 4\n"),
            "trace.verify t: a:0 compute 0 ^0: ends at 4 before it begins at 5");
  EXPECT_EQ(error_of("compute 0 ^0 -5 4\n"),
            "trace.verify t: a:0 compute 0 ^0: found times from -5 to 4, wanted them within 0 and "
            "1152921504606846976");
  EXPECT_EQ(error_of("compute 0 ^1 0 4\n"),
            "trace.verify t: a:0 compute 0 ^1: has no name among the 1 of its device");
  EXPECT_EQ(error_of("transfer 0 ^0 0 4 bytes -1\n"),
            "trace.verify t: a:0 transfer 0 ^0: found -1 bytes");
  EXPECT_EQ(error_of("transfer 0 ^0 0 4\ncompute 0 ^0 0 4\n"),
            "trace.verify t: a:0 compute 0 ^0: comes after one of a later device or lane");
  EXPECT_EQ(error_of("compute 0 ^0 0 4\ncompute 1 ^0 3 5\n"),
            "trace.verify t: a:0 compute 1 ^0: begins at 3 while ^0 runs until 4");
  EXPECT_EQ(error_of("step 1 0 4 peak 0\nstep 1 4 5 peak 0\n"),
            "trace.verify t: a:0 step 1: comes after a later device or step, or twice");
  EXPECT_EQ(error_of("step 1 0 4 peak 0\nstep 2 3 5 peak 0\n"),
            "trace.verify t: a:0 step 2: begins at 3 while step 1 runs until 4");
  EXPECT_EQ(error_of("step 1 0 4 peak -2\n"), "trace.verify t: a:0 step 1: found -2 bytes");
}

TEST(TraceVerify, SeveralPeersMayBeServedAtOnce) {
  EXPECT_EQ(error_of("transfer 0 ^0 0 9\npeer 0 ^0 1 5\npeer 0 ^0 1 4\npeer 0 ^0 3 4\n"), "");
  EXPECT_EQ(error_of("peer 0 ^0 3 5\npeer 0 ^0 2 4\n"),
            "trace.verify t: a:0 peer 0 ^0: begins at 2, before ^0 at 3");
}

TEST(TraceVerify, DevicesExist) {
  Trace trace = parse_trace(kSmall, "t").value();
  trace.intervals[0].device = 2;
  EXPECT_EQ(verify_trace(trace, "t").error().message, "t: interval 0: device 2 does not exist");
  trace = parse_trace(kSmall, "t").value();
  trace.steps[0].device = -1;
  EXPECT_EQ(verify_trace(trace, "t").error().message, "t: step mark 0: device -1 does not exist");
  trace.names.pop_back();
  EXPECT_EQ(verify_trace(trace, "t").error().message, "t: found names of 1 devices, wanted 2");
}

// Two devices, two steps. Times in ns.
//   a: steps 0..100, 100..220       b: steps 0..110, 110..200
//   compute of a: 0..40, 60..80, 100..160      = 120 of 220
//   transfer of a: 30..70, 70..90, 170..200    =  90, of which 30..40 and 60..80 beside compute
//   compute of b: 0..100                       = 100 of 200
//   transfer of b: 90..110                     =  20, of which 90..100 beside compute
const std::string kMeasured =
    "motley.trace/1\nsource predicted\n"
    "device \"a:0\"\nname ^0 \"f\"\n"
    "step 0 0 100 peak 10\nstep 1 100 220 peak 30\n"
    "compute 0 ^0 0 40\ncompute 0 ^0 60 80\ncompute 1 ^0 100 160\n"
    "transfer 0 ^0 30 70\ntransfer 0 ^0 70 90\ntransfer 1 ^0 170 200\n"
    "device \"b:0\"\nname ^0 \"f\"\n"
    "step 0 0 110 peak 20\nstep 1 110 200 peak 15\n"
    "compute 0 ^0 0 100\ntransfer 0 ^0 90 110\n";

TEST(Measures, FollowTheirDefinitions) {
  const Trace trace = parse_trace(kMeasured, "t").value();
  // Slowest device of step 0: 110 (b), of step 1: 120 (a); median of the two: 115.
  EXPECT_DOUBLE_EQ(median_step(trace).value, 115e-9);
  const std::vector<double> busy = busy_share(trace);
  EXPECT_DOUBLE_EQ(busy[0], 120.0 / 220);
  EXPECT_DOUBLE_EQ(busy[1], 100.0 / 200);
  // a: 90 - 30 = 60 in 2 steps; b: 20 - 10 = 10 in 2 steps; mean of 30 and 5: 17.5.
  EXPECT_DOUBLE_EQ(exposed_communication(trace).value, 17.5e-9);
}

TEST(Measures, MedianOfAnOddNumberOfStepsIsTheMiddleOne) {
  Trace trace;
  trace.devices = {"a:0"};
  trace.names = {{}};
  // 10, 100 and 20 long.
  trace.steps = {{0, 0, 0, 10, 0}, {0, 1, 10, 110, 0}, {0, 2, 110, 130, 0}};
  EXPECT_DOUBLE_EQ(median_step(trace).value, 20e-9);
}

TEST(Measures, OfNothingAreZero) {
  EXPECT_EQ(median_step({}).value, 0);
  EXPECT_EQ(exposed_communication({}).value, 0);
  EXPECT_TRUE(busy_share({}).empty());
  Trace idle;
  idle.devices = {"a:0"};
  idle.names = {{}};
  EXPECT_EQ(busy_share(idle), std::vector<double>{0});
  EXPECT_EQ(exposed_communication(idle).value, 0);
}

// The example of trace.h, with its sum in the transfer lane. Then a step with a late receive
// (150..160, compute 160..170) and a sum of zero length at 200, for which it waited.
TEST(Measures, BreakStepsDownIntoPartsThatSumToThem) {
  const Trace trace = parse_trace(
                          "motley.trace/1\nsource predicted\ndevice \"a:0\"\n"
                          "name ^0 \"aten::mm\"\nname ^1 \"motley::all_reduce bucket 0\"\n"
                          "name ^2 \"motley::receive activations\"\n"
                          "step 0 0 100 peak 0\nstep 1 100 200 peak 0\n"
                          "compute 0 ^0 0 40\ncompute 0 ^0 70 90\n"
                          "compute 1 ^0 100 130\ncompute 1 ^0 160 170\n"
                          "transfer 0 ^1 60 80 bytes 8\n"
                          "transfer 1 ^2 150 160 bytes 8\ntransfer 1 ^1 200 200\n"
                          "device \"b:0\"\nname ^0 \"motley::all_reduce x\"\n"
                          "step 0 0 100 peak 0\n"
                          "compute 0 ^0 30 80 bytes 4\n",
                          "t")
                          .value();
  const std::vector<Breakdown> parts = break_down(trace);
  // Step 0: 60, 10, 20, 10. Step 1: compute 40, receive 10, bubble 130..150, waiting 170..200.
  EXPECT_EQ(parts[0], (Breakdown{2, 100, 20, 50, 30}));
  EXPECT_EQ(parts[0].total(), 200);
  // A sum in the compute lane from 0 to 30, and nothing after 80.
  EXPECT_EQ(parts[1], (Breakdown{1, 0, 50, 30, 20}));
}

RC_GTEST_PROP(Measures, PartsOfStepsSumToTheSteps, ()) {
  const Trace trace = draw_trace(*rc::gen::arbitrary<std::uint64_t>());
  const std::vector<Breakdown> parts = break_down(trace);
  for (std::size_t device = 0; device < parts.size(); ++device) {
    RC_ASSERT(parts[device].steps == 3);
    RC_ASSERT(parts[device].total() == 150);
  }
}

TEST(Names, AreEqualHoweverTheyAreHeld) {
  NamePool pool;
  for (const auto* last : {"b", "c"}) {
    pool.add_device();
    for (const auto* name : {"a", "b", "a", last}) pool.add(name);
  }
  std::vector<Names> names = std::move(pool).take();
  EXPECT_EQ(names[0], (Names{"a", "b", "a", "b"}));
  EXPECT_EQ(names[1], (Names{"a", "b", "a", "c"}));
  const Names copy = names[0];
  names[0].push_back("d");
  EXPECT_EQ(names[0], (Names{"a", "b", "a", "b", "d"}));
  EXPECT_EQ(copy, (Names{"a", "b", "a", "b"}));
  EXPECT_EQ(names[1][3], "c");
}

RC_GTEST_PROP(Measures, ScaleWithTime, ()) {
  const Trace trace = draw_trace(*rc::gen::arbitrary<std::uint64_t>());
  Trace twice = trace;
  for (Interval& i : twice.intervals) i.begin *= 2, i.end *= 2;
  for (StepMark& mark : twice.steps) mark.begin *= 2, mark.end *= 2;
  RC_ASSERT(median_step(twice).value == 2 * median_step(trace).value);
  RC_ASSERT(busy_share(twice) == busy_share(trace));
  const double exposed = exposed_communication(trace).value;
  RC_ASSERT(std::abs(exposed_communication(twice).value - 2 * exposed) <= 1e-12 * exposed);
}

}  // namespace
}  // namespace motley::trace
