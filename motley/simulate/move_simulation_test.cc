// Moves (synth/state/move.h) on the simulator's clock, where a send lasts until it is received.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "motley/program/memory.h"
#include "motley/program/program_text.h"
#include "motley/simulate/simulate.h"
#include "motley/synth/state/move.h"
#include "motley/testing/drawn_forms.h"
#include "motley/testing/label_cost.h"

namespace motley::simulate {
namespace {

program::Program parse_forms(const std::string& devices) {
  auto program = program::parse_program(
      "motley.program/1\nmodel \"m\" plan \"p\" global_batch 0\n" + devices, "p");
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

// f32[40] in messages of 10 numbers: four of 10 ns plus a nanosecond for each of 40 bytes.
TEST(MoveSimulation, MessagesFollowEachOther) {
  const auto move = synth::lower_move(
      parse_forms("device \"a\" samples 0 first 0\nbuffer %0: parameter f32[40] \"w\"\n"),
      parse_forms("device \"b\" samples 0 first 0\nbuffer %0: parameter f32[40] \"w\"\n"),
      {.devices = {"a", "b"}, .message = Bytes(40)});
  ASSERT_TRUE(move) << move.error().message;
  const auto trace = simulate(move->program, testing::LabelCost(10));
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_DOUBLE_EQ(trace::median_step(*trace).value, 4 * 50e-9);
  // The whole tensor, and two messages in flight, at either end.
  for (const program::DeviceProgram& device : move->program.devices)
    EXPECT_EQ(program::find_memory_peak(device).total, Bytes(160 + 2 * 40)) << device.device;
}

// Any forms, any number of messages: no deadlock.
RC_GTEST_PROP(MoveSimulation, ComesToItsEnd, ()) {
  testing::DrawnForms drawn(*rc::gen::arbitrary<std::uint64_t>());
  const program::Program from = drawn.draw(), to = drawn.draw();
  const auto move = synth::lower_move(
      from, to, {.devices = {"d3", "d0", "d1", "d2", "d4"}, .message = Bytes(drawn.number(1, 40))});
  RC_PRE(move.has_value());
  std::int64_t bytes = 0, longest = 0;
  for (const synth::RankMove& rank : move->ranks) {
    bytes += rank.received.value;
    longest = std::max({longest, rank.received.value, rank.sent.value});
  }
  const auto trace = simulate(move->program, testing::LabelCost(0));
  if (!trace) RC_FAIL(trace.error().message);
  // At most serial; with at most four others, a quarter of a device's bytes is serial.
  const double seconds = trace::median_step(*trace).value;
  RC_ASSERT(seconds <= static_cast<double>(bytes) * 1e-9 * 1.000001);
  RC_ASSERT(seconds >= static_cast<double>(longest) * 1e-9 / 4 * 0.999999);
}

}  // namespace
}  // namespace motley::simulate
