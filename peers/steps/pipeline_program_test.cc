// Pipelines whose sends overlap with the computation on either side.
#include "motley/testing/pipeline_program.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "motley/base/random.h"
#include "motley/program/program_text.h"
#include "motley/simulate/simulate.h"
#include "motley/testing/label_cost.h"
#include "peers/steps/pipeline_span.h"

namespace motley::simulate {
namespace {

using testing::LabelCost;
using testing::PipelineProgram;

trace::Trace run(const program::Program& program, const cost::CostModel& cost, int steps = 1) {
  if (const auto verified = program::verify_program(program, "p"); !verified) {
    ADD_FAILURE() << verified.error().message;
    return {};
  }
  auto trace = simulate(program, cost, {.steps = steps});
  if (!trace) {
    ADD_FAILURE() << trace.error().message;
    return {};
  }
  if (const auto verified = trace::verify_trace(*trace, "t"); !verified)
    ADD_FAILURE() << verified.error().message;
  return std::move(*trace);
}

trace::Nanoseconds end_of(const trace::Trace& trace) {
  trace::Nanoseconds end = 0;
  for (const trace::StepMark& mark : trace.steps) end = std::max(end, mark.end);
  return end;
}

// The example of pipeline_span.h with 1000 ns per second: messages of 500 ns.
//   stage 0: F0 0..1000, F1 1000..2000;  B0 5000..7000, B1 8000..10000
//   stage 1: F0 1500..2500, B0 2500..4500, F1 4500..5500, B1 5500..7500
TEST(Pipeline, MessagesOverlapWithComputation) {
  const trace::Trace trace =
      run(PipelineProgram({{1000, 2000}, {1000, 2000}}, 500, 2).one_forward_one_backward(),
          LabelCost(0));
  EXPECT_EQ(end_of(trace), 10000);
  // The messages: forward 1000..1500, 2000..2500; backward 4500..5000, 7500..8000. Stage 0 computes
  // 0..2000, 5000..7000, 8000..10000: all messages but the first are exposed, 1500; 2500..4500 and
  // 7000..7500 before a receive are bubbles. Stage 1 computes 1500..7500: the first and the last
  // message are exposed, 1000; 0..1000 is a bubble; it ends at 8000.
  const auto parts = trace::break_down(trace);
  EXPECT_EQ(parts[0].compute, 6000);
  EXPECT_EQ(parts[0].exposed_communication, 1500);
  EXPECT_EQ(parts[0].bubble, 2500);
  EXPECT_EQ(parts[1].compute, 6000);
  EXPECT_EQ(parts[1].exposed_communication, 1000);
  EXPECT_EQ(parts[1].bubble, 1000);
  EXPECT_DOUBLE_EQ(trace::exposed_communication(trace).value, 1250e-9);
}

TEST(Pipeline, TheNextStepBeginsWhenAllStrandsAreOver) {
  // Stage 1 ends with its last message at 8000 and waits until 11500 for the first one of the next
  // step, which stage 0 begins at 10000: 10000 more. Bytes, 500 per message: receives that no
  // compute waits for are present from the step's begin, such sends to its end. On stage 0 all four
  // are present at F1; on stage 1 always two, as F0 is received when B0, and F1 when B1, gives.
  const trace::Trace trace =
      run(PipelineProgram({{1000, 2000}, {1000, 2000}}, 500, 2).one_forward_one_backward(),
          LabelCost(0), 2);
  EXPECT_EQ(trace.steps, (std::vector<trace::StepMark>{{0, 0, 0, 10000, 2000},
                                                       {0, 1, 10000, 20000, 2000},
                                                       {1, 0, 0, 8000, 1000},
                                                       {1, 1, 8000, 18000, 1000}}));
}

TEST(Pipeline, TakesTheSpanOfItsSchedule) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SplitMix64 random(seed);
    const auto draw = [&](std::int64_t from, std::int64_t to) {
      return from + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(to - from)));
    };
    std::vector<PipelineProgram::Stage> stages;
    std::vector<peers::MicroBatchTimes> times;
    std::int64_t least = 90;
    for (std::int64_t s = draw(1, 6); s > 0; --s) {
      stages.push_back({draw(1, 90), draw(1, 90)});
      const auto& [forward, backward] = stages.back();
      times.push_back({Seconds(static_cast<double>(forward) * 1e-9),
                       Seconds(static_cast<double>(backward) * 1e-9)});
      least = std::min({least, forward, backward});
    }
    // A strand carries one message at a time, which the span ignores: no message may wait for the
    // one before. None does that takes less than a stage's compute between two.
    const std::int64_t message = draw(0, least + 1), micro_batches = draw(1, 12);
    const trace::Trace trace = run(
        PipelineProgram(stages, message, micro_batches).one_forward_one_backward(), LabelCost(0));
    const Seconds span =
        peers::pipeline_span(times, Seconds(static_cast<double>(message) * 1e-9), micro_batches);
    EXPECT_EQ(end_of(trace), std::llround(span.value * 1e9)) << "seed " << seed;
  }
}

// The first is through after sum t + sum d; then the slowest stage or strand sets the pace.
RC_GTEST_PROP(Pipeline, ForwardsComeAtThePaceOfTheSlowestStageOrStrand, ()) {
  std::vector<PipelineProgram::Stage> stages;
  std::int64_t through = 0, slowest = 0;
  const std::int64_t message = *rc::gen::inRange(1, 90);
  const int depth = *rc::gen::inRange(2, 6);
  for (int s = 0; s < depth; ++s) {
    stages.push_back({*rc::gen::inRange(1, 90), 0});
    through += stages.back().forward;
    slowest = std::max(slowest, stages.back().forward);
  }
  through += (depth - 1) * message;
  slowest = std::max(slowest, message);
  const auto micro_batches = *rc::gen::inRange<std::int64_t>(1, 12);
  const trace::Trace trace =
      run(PipelineProgram(stages, message, micro_batches).forward_only(), LabelCost(0));
  RC_ASSERT(end_of(trace) == through + (micro_batches - 1) * slowest);
}

/// Sends are flows of their bytes over link 0, of 1e9 B/s: alone a byte per nanosecond.
class SharedLink : public LabelCost {
 public:
  SharedLink() : LabelCost(0) {}
  Result<cost::Transfer> transfer(std::string_view, const cost::ExchangeSize& size,
                                  const std::vector<std::string>&) const override {
    return cost::Transfer{
        {{Seconds(10e-9), {{static_cast<double>(size.bytes.value), {{0, 1.0}}, 0}}}}};
  }
  std::vector<double> link_capacities() const override { return {1e9}; }
};

TEST(Pipeline, PairsShareALink) {
  // Both flow from 10 on at half the link. c's 40 are through at 90; a's remaining 60 at 150.
  const auto device = [](const char* name, int bytes, const std::string& line) {
    return std::string("device \"") + name + "\" samples 1 first 0\nbuffer %0: constant u8[" +
           std::to_string(bytes) + "] \"c\"\nbuffer %1: temporary u8[" + std::to_string(bytes) +
           "]\n" + line;
  };
  const auto program =
      program::parse_program("motley.program/1\nmodel \"\" plan \"\" global_batch 4\n" +
                                 device("a:0", 100, "peer ^0: motley::send(%0, 1)\n") +
                                 device("b:0", 100, "peer ^0: %1 = motley::receive(0)\n") +
                                 device("c:0", 40, "peer ^0: motley::send(%0, 3)\n") +
                                 device("d:0", 40, "peer ^0: %1 = motley::receive(2)\n"),
                             "p");
  ASSERT_TRUE(program) << program.error().message;
  const trace::Trace trace = run(*program, SharedLink());
  EXPECT_EQ(trace.steps[0].end, 150);
  EXPECT_EQ(trace.steps[1].end, 150);
  EXPECT_EQ(trace.steps[2].end, 90);
  EXPECT_EQ(trace.steps[3].end, 90);
}

}  // namespace
}  // namespace motley::simulate
