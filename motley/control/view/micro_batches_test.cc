#include "motley/control/view/micro_batches.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "motley/control/view/report_parts.h"
#include "motley/program/program_text.h"

namespace motley::control {
namespace {

program::Program parse(const std::string& text) {
  auto program = program::parse_program(
      "motley.program/1\nmodel \"m\" plan \"p\" global_batch 4 micro_batches 2\n" + text, "test");
  EXPECT_TRUE(program) << program.error().message;
  return std::move(program).value();
}

std::string passes_text(const program::Program& program,
                        const std::vector<report::StageRow>& stages = {}) {
  std::string text;
  const auto passes = find_passes(program, stages);
  for (const report::Pass& each : passes[0])
    text += each.micro_batch < 0
                ? " -"
                : fmt::format(" {}{}", each.micro_batch, each.is_backward ? "b" : "f");
  return text;
}

/// Two micro-batches: forward passes, whose counts are summed, then backward passes, whose
/// gradients are accumulated.
constexpr const char* kStep = R"(device "a:0" samples 2 first 0
buffer %0: input f32[4, 3] "x"
buffer %1: parameter f32[3, 3] "w"
buffer %2: temporary f32[2, 3]
buffer %3: temporary f32[2, 3]
buffer %4: temporary f32[2, 3]
buffer %5: temporary f32[2, 3]
buffer %6: temporary f32[]
buffer %7: temporary f32[]
buffer %8: temporary f32[]
buffer %9: temporary f32[2, 3]
buffer %10: temporary f32[3, 3]
buffer %11: temporary f32[2, 3]
buffer %12: temporary f32[3, 3]
buffer %13: temporary f32[3, 3]
compute ^0: %0 = motley::load(0)
compute ^1: %2 = aten::slice.Tensor(%0, 0, 0, 2, 1)
compute ^2: %3 = aten::slice.Tensor(%0, 0, 2, 4, 1)
compute ^3: %4 = aten::mm(%2, %1) origin 0
compute ^4: %5 = aten::mm(%3, %1) origin 0
compute ^5: %6 = aten::sum(%4) origin 1
compute ^6: %7 = aten::sum(%5) origin 1
compute ^7: %8 = aten::add.Tensor(%6, %7, 1)
compute ^8: %9 = aten::threshold_backward(%4, %8, 0) origin 2
compute ^9: %10 = aten::mm(%2, %9) origin 3
compute ^10: %11 = aten::threshold_backward(%5, %8, 0) origin 2
compute ^11: %12 = aten::mm(%3, %11) origin 3
compute ^12: %13 = aten::add.Tensor(%10, %12, 1) origin 3
compute ^13: motley::update("sgd", [%1], [%13])
)";

TEST(MicroBatches, FollowTheDataFromSlicesToSums) {
  // ^7 adds numbers of both, so it does not count for ^8; ^12 accumulates the last gradient.
  EXPECT_EQ(passes_text(parse(kStep)), " - 0f 1f 0f 1f 0f 1f 1f 0b 0b 1b 1b 1b -");
}

TEST(MicroBatches, MessagesOfAKindAreInOrder) {
  // Two tensors of a micro-batch share a label; the state's message is unique.
  const program::Program program = parse(R"(device "a:0" samples 2 first 0
buffer %0: temporary f32[2, 3]
buffer %1: temporary f32[2, 3]
buffer %2: temporary f32[2, 3]
buffer %3: temporary f32[2, 3]
buffer %4: temporary f32[5]
peer ^0: %4 = motley::receive(1) "w"
peer ^1: %0 = motley::receive(1) "h.0"
peer ^2: %1 = motley::receive(1) "h.0"
peer ^3: %2 = motley::receive(1) "h.0"
peer ^4: %3 = motley::receive(1) "h.0"
device "b:0" samples 2 first 0
buffer %0: parameter f32[2, 3] "h"
buffer %1: parameter f32[5] "w"
peer ^0: motley::send(%1, 0) "w"
peer ^1: motley::send(%0, 0) "h.0"
peer ^2: motley::send(%0, 0) "h.0"
peer ^3: motley::send(%0, 0) "h.0"
peer ^4: motley::send(%0, 0) "h.0"
)");
  EXPECT_EQ(passes_text(program), " - 0f 0f 1f 1f");
}

TEST(MicroBatches, OfAReplicaAreThoseOfItsStages) {
  program::Program program = parse(kStep);
  program.micro_batches = 1;
  EXPECT_TRUE(find_passes(program, {})[0].empty());
  EXPECT_EQ(passes_text(program, {{0, 0, {"b:0"}, 1, 4, 1}, {1, 0, {"a:0"}, 1, 4, 2}}).size(),
            passes_text(parse(kStep)).size());
}

TEST(StageWork, IsWhatItsOperatorsTake) {
  std::string text = "motley.trace/1\nsource predicted\ndevice \"a:0\"\n";
  for (int i = 0; i < 14; ++i)
    text += fmt::format("name ^{} \"aten::x h.{}.fc\"\n", i, i < 5 ? 0 : 1);
  // Operators 0 and 1 are forward, 3 is backward; ^7 has none.
  text +=
      "step 0 0 100 peak 0\ncompute 0 ^3 0 10\ncompute 0 ^5 10 15\ncompute 0 ^7 15 40\n"
      "compute 0 ^9 40 70\n";
  const trace::Trace trace = trace::parse_trace(text, "test").value();
  plan::Plan plan;
  plan.replicas.resize(1);
  plan.replicas[0].regions.resize(2);
  plan.replicas[0].regions[0].covers = {{0, 1}, {3, 4}};
  std::vector<report::StageRow> rows{{0, 0, {"a:0"}, 2, 4, 2}, {0, 1, {"a:0"}, 4, 4, 2}};
  add_stage_work(plan, parse(kStep), trace, rows);
  EXPECT_DOUBLE_EQ(rows[0].compute_s, 40e-9);
  EXPECT_EQ(rows[0].layers, "h.0");
  EXPECT_DOUBLE_EQ(rows[1].compute_s, 45e-9);
  EXPECT_EQ(rows[1].layers, "h.0 to h.1");
}

}  // namespace
}  // namespace motley::control
