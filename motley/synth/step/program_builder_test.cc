#include "motley/synth/step/program_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/program/parts.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Ids = std::vector<std::int32_t>;

template <typename Id>
Ids numbers(const std::vector<Id>& ids) {
  Ids made;
  for (const Id id : ids) made.push_back(id.value);
  return made;
}

/// Starts with a parameter %0.
class ProgramBuilderTest : public ::testing::Test {
 protected:
  BufferId neg(BufferId x) { return builder_.make("aten::neg", {{x}}, DType::kF32, {4}, ""); }
  std::vector<Ids> waits(const program::DeviceProgram& device) const {
    std::vector<Ids> made;
    for (const program::Instruction& each : device.instructions)
      made.push_back(numbers(each.waits));
    return made;
  }
  std::vector<Ids> frees(const program::DeviceProgram& device) const {
    std::vector<Ids> made;
    for (const program::Instruction& each : device.instructions)
      made.push_back(numbers(each.frees));
    return made;
  }

  ProgramBuilder builder_{program::DeviceProgram{}};
  const BufferId weight_ =
      builder_.add_buffer({program::BufferKind::kParameter, DType::kF32, {4}, "w", BufferId()});
};

TEST_F(ProgramBuilderTest, NamesCarryTheirOverload) {
  builder_.compute("aten::sub.Tensor", {{weight_}, {weight_}, {std::int64_t{1}}}, {weight_}, "m",
                   OpId(7));
  const program::Instruction made = builder_.finish().instructions.front();
  EXPECT_EQ(made.op, "aten::sub");
  EXPECT_EQ(made.overload, "Tensor");
  EXPECT_EQ(made.label, "m");
  EXPECT_EQ(made.origin, OpId(7));
}

TEST_F(ProgramBuilderTest, LanesWaitForEachOtherOnce) {
  const BufferId a = neg(weight_);  // instruction 0
  builder_.all_reduce(a, "");       // 1, waits for the instruction that makes a
  const BufferId b = neg(weight_);  // 2, needs no exchange
  const BufferId c = neg(a);        // 3, waits for the sum
  neg(a);                           // 4, the sum is already done
  builder_.all_reduce(b, "");       // 5
  builder_.all_reduce(c, "");       // 6
  neg(c);                           // 7, waits for the last transfer and so for the one before
  neg(b);                           // 8
  EXPECT_THAT(waits(builder_.finish()),
              ElementsAre(Ids{}, Ids{0}, Ids{}, Ids{1}, Ids{}, Ids{2}, Ids{3}, Ids{6}, Ids{}));
}

TEST_F(ProgramBuilderTest, TemporariesAreFreedByTheLastThatTouchesThem) {
  const BufferId a = neg(weight_);  // %1
  const BufferId b = neg(a);        // %2
  neg(b);                           // %3, which is never read
  neg(a);                           // %4
  EXPECT_THAT(frees(builder_.finish()), ElementsAre(Ids{}, Ids{}, Ids{2, 3}, Ids{1, 4}));
}

TEST_F(ProgramBuilderTest, MemoryLivesAsLongAsItsViews) {
  const BufferId a = neg(weight_);                         // %1
  const BufferId view = builder_.unpack(a, {{4}}, "")[0];  // %2
  neg(view);                                               // %3
  EXPECT_THAT(frees(builder_.finish()), ElementsAre(Ids{}, Ids{}, Ids{1, 2, 3}));
}

TEST_F(ProgramBuilderTest, WhatTravelsIsKeptUntilSomebodyHasWaited) {
  const BufferId a = neg(weight_);                                       // %1
  builder_.exchange(program::kAllGather, a, {integers({4, 4})}, 8, "");  // reads %1, gives %2
  neg(weight_);                                                          // %3
  const BufferId sum = neg(weight_);                                     // %4
  builder_.all_reduce(sum, "");
  neg(sum);  // %5: waits for both transfers, as they are on one lane
  EXPECT_THAT(frees(builder_.finish()),
              ElementsAre(Ids{}, Ids{}, Ids{3}, Ids{}, Ids{}, Ids{1, 2, 4, 5}));
}

TEST_F(ProgramBuilderTest, PartsInARowAreJoinedByAView) {
  const graph::Slab rows{1, 4, 3}, columns{2, 6, 1};
  const BufferId flat = builder_.cut(weight_, rows, {1, 3}, "");
  EXPECT_EQ(builder_.buffer(flat).shape, (Shape{12}));
  EXPECT_FALSE(builder_.buffer(builder_.join(flat, rows, {1, 3}, {4, 3}, "")).view_of.is_none());
  const BufferId joined = builder_.join(flat, columns, {2, 4}, {2, 6}, "");
  EXPECT_TRUE(builder_.buffer(joined).view_of.is_none());
  const program::DeviceProgram made = builder_.finish();
  EXPECT_EQ(made.instructions[1].op, "motley::unpack");
  EXPECT_EQ(made.instructions[2].op, "motley::join");
}

}  // namespace
}  // namespace motley::synth
