#include <gtest/gtest.h>

#include "motley/program/program_text.h"

namespace motley::program {
namespace {

/// Returns the key of `instruction`, the second one of a small program: ^0 defines %2 to %4.
std::string key_of(const std::string& instruction) {
  const auto program = parse_program(
      "motley.program/1\nmodel \"\" plan \"\" global_batch 8\ngroup 0: 0\n"
      "device \"a:0\" samples 8 first 0\n"
      "buffer %0: parameter f32[24, 784] \"w\"\n"
      "buffer %1: state f32[24, 784] \"w/momentum\"\n"
      "buffer %2: temporary f32[784, 512]\n"
      "buffer %3: temporary bf16[3]\n"
      "buffer %4: temporary i64[]\n"
      "buffer %5: temporary f32[8, 2]\n"
      "buffer %6: temporary f32[16]\n"
      "buffer %7: constant f32[16] \"flat\"\n"
      "compute ^0: %2, %3, %4 = aten::start()\n" +
          instruction,
      "p");
  if (!program) return program.error().message;
  return cost_key(program->devices[0], program->devices[0].instructions[1]);
}

TEST(CostKey, HoldsOperatorDtypesAndShapes) {
  EXPECT_EQ(key_of("compute ^1: %5 = aten::mm(%0, %2)"), "aten::mm(f32[24,784], f32[784,512])");
  EXPECT_EQ(key_of("compute ^1: %5 = aten::add.Tensor(%3, %4, 1)"),
            "aten::add.Tensor(bf16[3], i64[], 1)");
  EXPECT_EQ(key_of("compute ^1: %5 = aten::cat([%2, %0], 0)"),
            "aten::cat([f32[784,512], f32[24,784]], 0)");
}

TEST(CostKey, KeepsWhatChoosesTheKernelAndNoMore) {
  EXPECT_EQ(key_of("compute ^1: %5 = aten::f(true, none, [1, 2], \"mean\", dtype(f32), "
                   "memory_format(contiguous))"),
            "aten::f(true, none, [1, 2], \"mean\", dtype(f32), memory_format(contiguous))");
  EXPECT_EQ(key_of("compute ^1: %5 = aten::f(0.5, number(40), number(0.1), layout(strided), "
                   "device(local), none)"),
            "aten::f(float, number, number, none)");
  EXPECT_EQ(key_of("compute ^1: %5 = aten::mul.Tensor(%3, complex(0.0, 1.0))"),
            "aten::mul.Tensor(bf16[3], complex)");
}

TEST(CostKey, KeepsTheExponentOfAPower) {
  EXPECT_EQ(key_of("compute ^1: %5 = aten::pow.Tensor_Scalar(%3, 3.0)"),
            "aten::pow.Tensor_Scalar(bf16[3], 3.0)");
}

TEST(CostKey, SameForEveryBatchPositionAndInput) {
  EXPECT_EQ(key_of("compute ^1: %5 = motley::load(3)"), "motley::load(f32[8,2])");
  EXPECT_EQ(key_of("compute ^1: %5 = motley::dropout(%2, 0.1, number(17), 4, 512, number(24), "
                   "number(40), number(20480), number(1), number(2))"),
            "motley::dropout(f32[784,512], float, 4, 512)");
  EXPECT_EQ(key_of("compute ^1: %5 = motley::random(\"normal\", number(17), 2, 2, number(24), "
                   "number(40), number(1), number(0), number(1))"),
            "motley::random(\"normal\", f32[8,2], 2, 2)");
}

TEST(CostKey, LeavesOutWhomItIsExchangedWith) {
  DeviceProgram device{"a:0", 1, 0, {{BufferKind::kTemporary, DType::kF32, {8, 2}, "", {}}}, {}};
  EXPECT_EQ(cost_key(device, {Lane::kTransfer, "motley::send", "", {{BufferId(0)}, {int64_t{1}}}}),
            "motley::send(f32[8,2])");
  EXPECT_EQ(
      cost_key(device, {Lane::kTransfer, "motley::receive", "", {{int64_t{1}}}, {BufferId(0)}}),
      "motley::receive(f32[8,2])");
}

TEST(CostKey, SumsUpLongLists) {
  // 784*512 + 24*784 = 401408 + 18816 = 420224
  EXPECT_EQ(key_of("compute ^1: %5 = motley::pack([%2, %0])"),
            "motley::pack(f32, 420224 elements, 2 tensors)");
  EXPECT_EQ(key_of("compute ^1: motley::update(\"sgd\", [%0], [%2], [%1], [], none, none, none, "
                   "0.01, 0.0, [0.9, 0.0])"),
            "motley::update(\"sgd\", f32, 18816 elements, 1 tensors, 1 states)");
  EXPECT_EQ(key_of("compute ^1: motley::update(\"sgd\", [%0], [%2], [], [], none, none, none, "
                   "0.01, 0.0, [0.9, 0.0])"),
            "motley::update(\"sgd\", f32, 18816 elements, 1 tensors, 0 states)");
  EXPECT_EQ(key_of("compute ^1: motley::update(\"sgd\", [%0], [%2], [], [], %1, none, 0.5, 0.01, "
                   "0.0, [0.9, 0.0])"),
            "motley::update(\"sgd\", f32, 18816 elements, 1 tensors, 0 states, scaled, clipped)");
  EXPECT_EQ(key_of("compute ^1: motley::apply(\"muon\", [%0], [%2], [24, 784], none, none, none, "
                   "none, 0.01, 0.0, [0.9, 0.0])"),
            "motley::apply(\"muon\", f32, 18816 elements, 1 tensors)");
}

TEST(CostKey, PartsHaveTheirSizes) {
  EXPECT_EQ(key_of("compute ^1: %6 = motley::cut(%7, 4, [1, 0, 3], 1)"),
            "motley::cut(f32, 16 elements, 3 parts, 4 before, 1 after)");
  EXPECT_EQ(key_of("compute ^1: %5 = motley::part(%0, 1, 100, 2)"),
            "motley::part(f32, 16 elements, 1 parts, 1 before, 2 after)");
  EXPECT_EQ(key_of("compute ^1: %6 = motley::all_gather(%7, [16]) group 0"),
            "motley::all_gather(f32[16], [16])");
}

}  // namespace
}  // namespace motley::program
