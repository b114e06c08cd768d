#include "motley/simulate/simulate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "motley/base/file.h"
#include "motley/program/program_text.h"
#include "motley/testing/label_cost.h"
#include "motley/testing/places.h"
#include "motley/testing/program_generator.h"

namespace motley::simulate {
namespace {

using testing::LabelCost;

program::Program parse(const std::string& body) {
  auto program =
      program::parse_program("motley.program/1\nmodel \"\" plan \"\" global_batch 8\n" + body, "p");
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

std::string golden(const std::string& name) {
  return read_file(testing::source_path("tests/golden/simulate/") + name).value();
}

// Latency 10 ns and 50 bytes: the sum takes 60 ns.
//   a: f 0..100, g 100..180;  b: f 0..130, g 130..150
//   the sum begins when b, the slower one, has its part: 130..190 on both
// h waits for it on both: 190..200. The sum hides behind 50 ns of a's g and 20 ns of b's.
// The second step is the first, 200 ns later. Memory of a: %0 and %1 are never freed, 50 + 8.
TEST(Simulate, ALongTransferOverlapsCompute) {
  const auto program =
      program::parse_program(golden("two_devices.program.txt"), "two_devices.program.txt");
  ASSERT_TRUE(program) << program.error().message;
  const auto trace = simulate(*program, LabelCost(10), {.steps = 2});
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace::print_trace(*trace), golden("two_devices.trace.txt"));
  EXPECT_DOUBLE_EQ(trace::median_step(*trace).value, 200e-9);
  // a: 60 - 50 = 10, b: 60 - 20 = 40 of the sum are exposed: 25 on average.
  EXPECT_DOUBLE_EQ(trace::exposed_communication(*trace).value, 25e-9);
}

TEST(Simulate, TransfersRunInOrderAndDoNotHoldUpCompute) {
  // Sums of 10 + 20 and 10 + 30 ns. f 0..5, sum ^1 5..35, g 5..10, sum ^3 waits for its lane:
  // 35..75; h waits for ^1 only: 35..42. The step ends with the last transfer: 75.
  const auto trace = simulate(parse("group 0: 0\ndevice \"a:0\" samples 8 first 0\n"
                                    "buffer %0: temporary u8[20]\nbuffer %1: temporary u8[30]\n"
                                    "compute ^0: %0 = aten::f() \"5\"\n"
                                    "transfer ^1: motley::all_reduce(%0) group 0 wait ^0\n"
                                    "compute ^2: %1 = aten::g() \"5\"\n"
                                    "transfer ^3: motley::all_reduce(%1) group 0 wait ^2\n"
                                    "compute ^4: aten::h(%0) wait ^1 \"7\"\n"),
                              LabelCost(10));
  ASSERT_TRUE(trace) << trace.error().message;
  const std::vector<trace::Interval> wanted = {
      {0, Lane::kCompute, 0, InstructionId(0), 0, 5, 0},
      {0, Lane::kCompute, 0, InstructionId(2), 5, 10, 0},
      {0, Lane::kCompute, 0, InstructionId(4), 35, 42, 0},
      {0, Lane::kTransfer, 0, InstructionId(1), 5, 35, 20},
      {0, Lane::kTransfer, 0, InstructionId(3), 35, 75, 30}};
  EXPECT_EQ(trace->intervals, wanted);
  EXPECT_EQ(trace->steps, (std::vector<trace::StepMark>{{0, 0, 0, 75, 50}}));
}

TEST(Simulate, AFastDeviceMayBeAStepAhead) {
  // No exchange: a takes 10 per step, b 100. Three steps end at 30 and 300.
  const auto trace = simulate(parse("device \"a:0\" samples 4 first 0\n"
                                    "compute ^0: aten::f() \"10\"\n"
                                    "device \"b:0\" samples 4 first 4\n"
                                    "compute ^0: aten::f() \"100\"\n"),
                              LabelCost(10), {.steps = 3});
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->steps, (std::vector<trace::StepMark>{{0, 0, 0, 10, 0},
                                                        {0, 1, 10, 20, 0},
                                                        {0, 2, 20, 30, 0},
                                                        {1, 0, 0, 100, 0},
                                                        {1, 1, 100, 200, 0},
                                                        {1, 2, 200, 300, 0}}));
}

TEST(Simulate, ACollectiveOfTheNextStepWaitsForTheSlowDevice) {
  // The sum is first in each step: 10 + 1 ns. a: sum 0..11, f 11..12, step 12; b: f 11..111.
  // Step 1: a reaches the sum at 12, b at 111: 111..122; a ends at 123, b at 222.
  const std::string device =
      "buffer %0: state u8[1] \"s\"\n"
      "compute ^0: motley::all_reduce(%0) group 0\n";
  const auto trace = simulate(parse("group 0: 0 1\ndevice \"a:0\" samples 4 first 0\n" + device +
                                    "compute ^1: aten::f() \"1\"\n"
                                    "device \"b:0\" samples 4 first 4\n" +
                                    device + "compute ^1: aten::f() \"100\"\n"),
                              LabelCost(10), {.steps = 2});
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->steps,
            (std::vector<trace::StepMark>{
                {0, 0, 0, 12, 1}, {0, 1, 12, 123, 1}, {1, 0, 0, 111, 1}, {1, 1, 111, 222, 1}}));
}

TEST(Simulate, ACollectiveWaitsForTheSlowestWhereverItStands) {
  // a, b, c reach the sum of 10 + 1 ns at 5, 90 and 30: all end at 90 + 11.
  std::string body = "group 0: 0 1 2\n";
  for (const auto& [name, time] : {std::pair{"a:0", 5}, {"b:0", 90}, {"c:0", 30}})
    body += "device \"" + std::string(name) + "\" samples 0 first 0\n" +
            "buffer %0: state u8[1] \"s\"\n" + "compute ^0: aten::f() \"" + std::to_string(time) +
            "\"\n" + "transfer ^1: motley::all_reduce(%0) group 0 wait ^0\n";
  const auto trace = simulate(parse(body), LabelCost(10));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->steps, (std::vector<trace::StepMark>{
                              {0, 0, 0, 101, 1}, {1, 0, 0, 101, 1}, {2, 0, 0, 101, 1}}));
}

TEST(Simulate, UnevenCollectivesTakeTheirLargestPart) {
  // 10 ns, and a nanosecond per byte. ^1 gathers 3 and 5 bytes: 10 + 2 * 5 = 20 from 0 on. ^2: a
  // holds 5 before and 1 after, b 3 and 7, the maximum: 10 + 7 = 17 ns, 20..37.
  const std::string buffers =
      "buffer %0: temporary u8[3]\nbuffer %1: temporary u8[5]\nbuffer %2: temporary u8[8]\n"
      "buffer %3: temporary u8[1]\nbuffer %4: temporary u8[7]\ncompute ^0: %0, %1 = aten::f()\n";
  const auto trace =
      simulate(parse("group 0: 0 1\ndevice \"a:0\" samples 4 first 0\n" + buffers +
                     "transfer ^1: %2 = motley::all_gather(%0, [3, 5]) group 0 wait ^0\n"
                     "transfer ^2: %3 = motley::all_to_all(%1, [1, 4], [1, 0]) group 0\n"
                     "device \"b:0\" samples 4 first 4\n" +
                     buffers +
                     "transfer ^1: %2 = motley::all_gather(%1, [3, 5]) group 0 wait ^0\n"
                     "transfer ^2: %4 = motley::all_to_all(%0, [0, 3], [4, 3]) group 0\n"),
               LabelCost(10));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->steps[0].end, 37);
  EXPECT_EQ(trace->steps[1].end, 37);
}

TEST(Simulate, ADeviceWithoutInstructionsIsIdle) {
  const auto trace =
      simulate(parse("device \"a:0\" samples 8 first 0\n"), LabelCost(10), {.steps = 2});
  ASSERT_TRUE(trace);
  EXPECT_TRUE(trace->intervals.empty());
  EXPECT_EQ(trace->steps, (std::vector<trace::StepMark>{{0, 0, 0, 0, 0}, {0, 1, 0, 0, 0}}));
}

// Two groups of the same devices, entered in different orders: each is in order and verifies.
const char* const kCrossed =
    "group 0: 0 1\n"
    "group 1: 0 1\n"
    "device \"a:0\" samples 4 first 0\n"
    "buffer %0: state f32[4] \"s\"\n"
    "compute ^0: aten::f()\n"
    "transfer ^1: motley::all_reduce(%0) group 0 wait ^0\n"
    "transfer ^2: motley::all_reduce(%0) group 1\n"
    "compute ^3: aten::g(%0) wait ^2\n"
    "device \"b:0\" samples 4 first 4\n"
    "buffer %0: state f32[4] \"s\"\n"
    "transfer ^0: motley::all_reduce(%0) group 1\n"
    "transfer ^1: motley::all_reduce(%0) group 0\n";

TEST(Simulate, ADeadlockSaysWhoWaitsForWhom) {
  const auto trace = simulate(parse(kCrossed), LabelCost(10));
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, "simulate.deadlock");
  EXPECT_EQ(trace.error().message,
            "deadlock: a:0 waits in ^3 aten::g for its other lane, which waits in ^1 "
            "motley::all_reduce for b:0, which waits in ^0 motley::all_reduce for a:0; all members "
            "must reach their collectives in one order");
}

TEST(Simulate, ADeadlockMayEndAtADeviceThatHasFinished) {
  // Not verified: b lacks the second sum.
  program::Program program = parse(
      "group 0: 0 1\n"
      "device \"a:0\" samples 4 first 0\nbuffer %0: state f32[4] \"s\"\n"
      "transfer ^0: motley::all_reduce(%0) group 0\n"
      "device \"b:0\" samples 4 first 4\nbuffer %0: state f32[4] \"s\"\n"
      "transfer ^0: motley::all_reduce(%0) group 0\n");
  program.devices[0].instructions.push_back(program.devices[0].instructions[0]);
  EXPECT_EQ(simulate(program, LabelCost(10)).error().message,
            "deadlock: a:0 waits in ^1 motley::all_reduce for b:0, which has no such instruction "
            "left; all members must reach their collectives in one order");
}

/// Two devices with a buffer of 20 bytes each; a sends to b and b to a as the lines give.
program::Program exchanging(const std::string& a, const std::string& b) {
  return parse(
      "device \"a:0\" samples 4 first 0\nbuffer %0: state u8[20] \"s\"\n"
      "buffer %1: temporary u8[20]\n" +
      a +
      "device \"b:0\" samples 4 first 4\nbuffer %0: state u8[20] \"s\"\n"
      "buffer %1: temporary u8[20]\n" +
      b);
}

TEST(Simulate, ASendAndItsReceiveAreOneTransfer) {
  // a computes 0..5 and sends; b is in f until 50 before it can receive: 50..80 (10 + 20 bytes) on
  // both; g of b 80..87. In step 1 a is ready at 85, b at 137: 137..167, 174.
  const auto trace = simulate(exchanging("compute ^0: aten::f() \"5\"\n"
                                         "peer ^1: motley::send(%0, 1) wait ^0\n",
                                         "compute ^0: aten::f() \"50\"\n"
                                         "peer ^1: %1 = motley::receive(0) wait ^0\n"
                                         "compute ^2: aten::g(%1) wait ^1 \"7\"\n"),
                              LabelCost(10), {.steps = 2});
  ASSERT_TRUE(trace) << trace.error().message;
  const std::vector<trace::Interval> wanted = {
      {0, Lane::kCompute, 0, InstructionId(0), 0, 5, 0},
      {0, Lane::kCompute, 1, InstructionId(0), 80, 85, 0},
      {0, Lane::kPeer, 0, InstructionId(1), 50, 80, 20},
      {0, Lane::kPeer, 1, InstructionId(1), 137, 167, 20},
      {1, Lane::kCompute, 0, InstructionId(0), 0, 50, 0},
      {1, Lane::kCompute, 0, InstructionId(2), 80, 87, 0},
      {1, Lane::kCompute, 1, InstructionId(0), 87, 137, 0},
      {1, Lane::kCompute, 1, InstructionId(2), 167, 174, 0},
      {1, Lane::kPeer, 0, InstructionId(1), 50, 80, 20},
      {1, Lane::kPeer, 1, InstructionId(1), 137, 167, 20}};
  EXPECT_EQ(trace->intervals, wanted);
}

TEST(Simulate, BothMaySendToEachOtherAtOnce) {
  // Each sends before it receives: two strands, 10 + 20 ns each, at the same time.
  const std::string lines = "peer ^0: motley::send(%0, {})\npeer ^1: %1 = motley::receive({})\n";
  const auto of = [&](const char* peer) {
    std::string text = lines;
    for (std::size_t at; (at = text.find("{}")) != std::string::npos;) text.replace(at, 2, peer);
    return text;
  };
  const auto trace = simulate(exchanging(of("1"), of("0")), LabelCost(10));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->steps, (std::vector<trace::StepMark>{{0, 0, 0, 30, 40}, {1, 0, 0, 30, 40}}));
}

TEST(Simulate, ReceivesThatWaitForEachOtherAreADeadlock) {
  // Each sends only what it has received.
  const std::string to_b =
      "peer ^0: %1 = motley::receive(1)\npeer ^1: motley::send(%1, 1) wait ^0\n";
  const std::string to_a =
      "peer ^0: %1 = motley::receive(0)\npeer ^1: motley::send(%1, 0) wait ^0\n";
  EXPECT_EQ(simulate(exchanging(to_b, to_a), LabelCost(10)).error().message,
            "deadlock: the strand from a:0 to b:0 waits in ^1 motley::send for the strand from b:0 "
            "to a:0, which waits in ^1 motley::send for the strand from a:0 to b:0; a send ends "
            "together with its receive");
  // A device computes what it needs a strand for.
  EXPECT_EQ(
      simulate(exchanging("peer ^0: %1 = motley::receive(1)\ncompute ^1: aten::f(%1) wait ^0\n"
                          "peer ^2: motley::send(%0, 1) wait ^1\n",
                          to_a),
               LabelCost(10))
          .error()
          .message,
      "deadlock: a:0 waits in ^1 aten::f for the strand from b:0 to a:0, which waits in ^1 "
      "motley::send for the strand from a:0 to b:0, which waits in ^2 motley::send for a:0; a "
      "send ends together with its receive");
}

TEST(Simulate, ASendWithoutAReceiveIsADeadlock) {
  // Not verified: b does not receive.
  program::Program program =
      exchanging("peer ^0: motley::send(%0, 1)\n", "peer ^0: %1 = motley::receive(0)\n");
  program.devices[1].instructions.clear();
  EXPECT_EQ(simulate(program, LabelCost(10)).error().message,
            "deadlock: a:0 waits in ^0 motley::send for b:0, which has no such instruction left; a "
            "send ends together with its receive");
}

/// Sums are flows of twice their bytes over the one link, of 1e9 B/s; sends use none.
class LinkCost : public LabelCost {
 public:
  explicit LinkCost(double capacity = 1e9) : LabelCost(10), capacity_(capacity) {}
  Result<cost::Transfer> transfer(std::string_view op, const cost::ExchangeSize& size,
                                  const std::vector<std::string>& devices) const override {
    if (op == "motley::send") return CostModel::transfer(op, size, devices);
    const auto moved = static_cast<double>(size.bytes.value);
    return cost::Transfer{{{Seconds(10e-9), {{moved, {{0, 2.0}}, 0}}}}};
  }
  std::vector<double> link_capacities() const override { return {capacity_}; }

 private:
  double capacity_;
};

TEST(Simulate, CollectivesThatShareALinkSlowEachOther) {
  // Groups {a} and {b} sum 20 bytes each, 40 on the link: alone 10 + 40 = 50. a from 0, b from 30:
  // a's flow is alone from 10 to 40 and has 10 left of 40 when b's starts: half the rate each, a
  // ends at 60. b then has 30 left: 90. With a link of its own b would end at 80.
  const auto trace =
      simulate(parse("group 0: 0\ngroup 1: 1\n"
                     "device \"a:0\" samples 4 first 0\nbuffer %0: state u8[20] \"s\"\n"
                     "transfer ^0: motley::all_reduce(%0) group 0\n"
                     "device \"b:0\" samples 4 first 4\nbuffer %0: state u8[20] \"s\"\n"
                     "compute ^0: aten::f() \"30\"\n"
                     "transfer ^1: motley::all_reduce(%0) group 1 wait ^0\n"),
               LinkCost());
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->steps, (std::vector<trace::StepMark>{{0, 0, 0, 60, 20}, {1, 0, 0, 90, 20}}));
}

TEST(Simulate, CollectivesOfOneGroupInBothLanesSlowEachOther) {
  // Both sums of 20 bytes begin at 0 and share the link from 10 on: 10 + 2 * 40.
  const auto trace =
      simulate(parse("group 0: 0\n"
                     "device \"a:0\" samples 8 first 0\nbuffer %0: state u8[20] \"s\"\n"
                     "buffer %1: state u8[20] \"t\"\n"
                     "compute ^0: motley::all_reduce(%0) group 0\n"
                     "transfer ^1: motley::all_reduce(%1) group 0\n"),
               LinkCost());
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->steps, (std::vector<trace::StepMark>{{0, 0, 0, 90, 40}}));
}

class FlowCost : public LabelCost {
 public:
  explicit FlowCost(cost::Flow flow) : LabelCost(10), flow_(std::move(flow)) {}
  Result<cost::Transfer> transfer(std::string_view, const cost::ExchangeSize&,
                                  const std::vector<std::string>&) const override {
    return cost::Transfer{{{Seconds(), {flow_}}}};
  }
  std::vector<double> link_capacities() const override { return {1e9}; }

 private:
  cost::Flow flow_;
};

TEST(Simulate, RefusesFlowsThatAreNone) {
  const auto error_of = [](cost::Flow flow) {
    return simulate(
               exchanging("peer ^0: motley::send(%0, 1)\n", "peer ^0: %1 = motley::receive(0)\n"),
               FlowCost(std::move(flow)))
        .error()
        .message;
  };
  EXPECT_EQ(error_of({1, {{1, 1.0}}, 0}),
            "motley::send: a flow uses link 1, but the cost model has 1");
  EXPECT_EQ(error_of({1, {{0, -2.0}}, 0}),
            "motley::send: a flow uses link 0 with weight -2, wanted above 0");
  EXPECT_EQ(error_of({-1, {{0, 1.0}}, 0}),
            "motley::send: found a flow of -1 bytes at up to 0 B/s, wanted neither below 0");
}

class SlowedCost : public LabelCost {
 public:
  explicit SlowedCost(double factor) : LabelCost(10), factor_(factor) {}
  double interference(const std::string& device,
                      const std::vector<std::string>& group) const override {
    EXPECT_EQ(group.size(), 2U);
    return device == group[0] ? factor_ : 0;
  }

 private:
  double factor_;
};

// As ALongTransferOverlapsCompute, but a computes at half speed during the sum, 130..190: of g's
// 80, 30 are done by 130 and 60 by 190, so it ends at 210 and h at 220. b's g still ends at 150,
// its h at 200 and its second f at 330. a's second f runs 220..320, and g has done 10 of 80 when
// the sum begins: 330..390. Then 40, and the rest by 430; h by 440.
TEST(Simulate, ComputeStretchedByCommunicationIsCompute) {
  const auto program =
      program::parse_program(golden("two_devices.program.txt"), "two_devices.program.txt");
  ASSERT_TRUE(program) << program.error().message;
  const auto trace = simulate(*program, SlowedCost(1), {.steps = 2});
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->steps[0].end, 220);
  EXPECT_EQ(trace->steps[1].end, 440);
  const auto parts = trace::break_down(*trace);
  EXPECT_EQ(parts[0].compute, 440);
  EXPECT_EQ(parts[0].exposed_communication, 0);
  EXPECT_EQ(parts[1].compute, 2 * 160);
}

TEST(Simulate, RefusesInterferenceThatIsNone) {
  const auto program =
      program::parse_program(golden("two_devices.program.txt"), "two_devices.program.txt");
  ASSERT_TRUE(program) << program.error().message;
  const std::string& name = program->devices[0].device;
  EXPECT_EQ(simulate(*program, SlowedCost(-1)).error().message,
            name + ": the cost model says that communication slows it by -1, wanted 0 to 1000000");
  EXPECT_FALSE(simulate(*program, SlowedCost(std::nan(""))));
}

TEST(Simulate, RefusesLinksThatCarryNothing) {
  EXPECT_EQ(simulate(exchanging("", ""), LinkCost(0)).error().message,
            "link 0: the cost model says 0 bytes/s, wanted above 0");
}

TEST(Simulate, RefusesStepsThatTakeForEver) {
  // 4,000 steps of a thousand instructions of 1e6 s: 4e12 s, more than 2^60 ns = 1.15e9 s.
  std::string body = "device \"a:0\" samples 8 first 0\n";
  for (int i = 0; i < 1000; ++i)
    body += "compute ^" + std::to_string(i) + ": aten::f() \"1000000000000000\"\n";
  EXPECT_EQ(simulate(parse(body), LabelCost(0), {.steps = 4000}).error().message,
            "the instructions may take 4e+12 s together, wanted at most 1.15e+09");
}

TEST(Simulate, RefusesTimesThatAreNone) {
  const std::string body =
      "device \"a:0\" samples 8 first 0\ncompute ^0: aten::f.out() \"1000000000\"\n";
  EXPECT_EQ(simulate(parse(body), LabelCost(0, std::nan(""))).error().message,
            "a:0 ^0 aten::f.out: the cost model says nan s, wanted 0 to 1000000");
  EXPECT_EQ(simulate(parse(body), LabelCost(0, -2)).error().message,
            "a:0 ^0 aten::f.out: the cost model says -2 s, wanted 0 to 1000000");
}

class FailingCost : public LabelCost {
 public:
  FailingCost() : LabelCost(0) {}
  Result<Seconds> collective_time(std::string_view op, Bytes,
                                  const std::vector<std::string>& devices) const override {
    return usage_error("cost.missing", std::string(op) + " " + devices.at(0) + " " + devices.at(1));
  }
};

TEST(Simulate, PassesOnWhatTheCostModelLacks) {
  EXPECT_EQ(simulate(parse(kCrossed), FailingCost()).error().message, "motley::all_reduce a:0 b:0");
}

/// Draws a program whose compute instructions take drawn times.
program::Program draw_program(std::uint64_t seed) {
  program::Program program = testing::ProgramGenerator(seed).draw(40);
  SplitMix64 random(seed);
  for (program::DeviceProgram& device : program.devices)
    for (program::Instruction& instruction : device.instructions)
      if (instruction.group.is_none()) instruction.label = std::to_string(random.below(1000));
  return program;
}

RC_GTEST_PROP(Simulate, GivesATraceThatVerifiesAndKeepsTheRules, ()) {
  const program::Program program = draw_program(*rc::gen::arbitrary<std::uint64_t>());
  const auto trace = simulate(program, LabelCost(100), {.steps = 3});
  if (!trace) RC_FAIL(trace.error().message);
  RC_ASSERT(trace::verify_trace(*trace, "t").has_value());
  std::size_t instructions = 0;
  for (const auto& device : program.devices) instructions += device.instructions.size();
  RC_ASSERT(trace->intervals.size() == 3 * instructions);
  for (const trace::StepMark& mark : trace->steps) {
    const auto& source = program.devices[static_cast<std::size_t>(mark.device)].instructions;
    std::vector<trace::Nanoseconds> begin(source.size(), -1), end(source.size(), -1);
    for (const trace::Interval& i : trace->intervals)
      if (i.device == mark.device && i.step == mark.step)
        begin[i.instruction.index()] = i.begin, end[i.instruction.index()] = i.end;
    for (std::size_t i = 0; i < source.size(); ++i) {
      RC_ASSERT(begin[i] >= mark.begin);
      RC_ASSERT(end[i] <= mark.end);
      for (const InstructionId wait : source[i].waits) RC_ASSERT(begin[i] >= end[wait.index()]);
    }
  }
}

RC_GTEST_PROP(Simulate, TwiceTheTimesTakeTwiceAsLong, ()) {
  const program::Program program = draw_program(*rc::gen::arbitrary<std::uint64_t>());
  const auto once = simulate(program, LabelCost(100), {.steps = 2});
  const auto twice = simulate(program, LabelCost(100, 2), {.steps = 2});
  RC_ASSERT(once && twice);
  for (std::size_t i = 0; i < once->steps.size(); ++i) {
    RC_ASSERT(twice->steps[i].begin == 2 * once->steps[i].begin);
    RC_ASSERT(twice->steps[i].end == 2 * once->steps[i].end);
  }
}

RC_GTEST_PROP(Simulate, NothingGetsFasterWhenOneInstructionGetsSlower, ()) {
  program::Program program = draw_program(*rc::gen::arbitrary<std::uint64_t>());
  const auto before = simulate(program, LabelCost(100));
  auto& instructions = program.devices[0].instructions;
  const auto slower = *rc::gen::inRange<std::size_t>(0, instructions.size());
  if (instructions[slower].group.is_none()) instructions[slower].label = "5000";
  const auto after = simulate(program, LabelCost(100));
  RC_ASSERT(before && after);
  for (std::size_t i = 0; i < before->steps.size(); ++i)
    RC_ASSERT(after->steps[i].end >= before->steps[i].end);
}

}  // namespace
}  // namespace motley::simulate
