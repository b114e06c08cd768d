#include "motley/synth/step/rank_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/synth/step/shared_exchange.h"
#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const graph::Form kByRow{graph::FormKind::kSharded, 0, 1, 6, 1};
/// Columns as two blocks of 4; a device has a part of each.
const graph::Form kInBlocks{graph::FormKind::kSharded, 1, 2, 4, 1};

/// %0: rows, %1: columns in blocks, %2: whole. Shares 2 and 1.
class RankStepTest : public ::testing::Test {
 protected:
  RankStepTest() {
    sharding_.devices = {"0", "1"};
    sharding_.shares = {2, 1};
    sharding_.batch = 3;
    sharding_.ops = {whole_strategy(rules_[0]), whole_strategy(rules_[1])};
    sharding_.sources.assign(graph_.values.size(), graph::kWholeForm);
    sharding_.sources[0] = kByRow;
    sharding_.sources[1] = kInBlocks;
  }

  /// Returns a rank's step with these two values in the forms they are kept in.
  RankStep step_of(const ShardedStep& step, std::size_t rank) {
    RankStep made(step, places_[rank], builder_);
    for (const ValueId id : {ValueId(0), ValueId(1)})
      made.set_value(
          id, made.builder().add_buffer({program::BufferKind::kParameter, DType::kF32,
                                         made.local_shape(id, step.home(id)), "", BufferId()}));
    return made;
  }

  const graph::Graph graph_ = small_graph(
      "param %0: f32[6, 4] \"a\"\nparam %1: f32[6, 8] \"b\"\n"
      "op %2: f32[4, 8] = aten::unheard_of(%0, %1) fwd \"\"\n");
  const std::vector<graph::ShardingRule> rules_ = find_rules(graph_, 3);
  Sharding sharding_;
  const std::vector<double> shares_ = {2, 1};
  Parts parts_{shares_};
  Place places_[2] = {{parts_, 0}, {parts_, 1}};
  ProgramBuilder builder_{program::DeviceProgram{}};
};

TEST_F(RankStepTest, HasItsPartOfEachExtent) {
  const ShardedStep step = plan_step(graph_, sharding_, rules_, {});
  RankStep second(step, places_[1], builder_);
  EXPECT_THAT(second.parts_of(6), ElementsAre(4, 2));  // 6 * 2/3, 6 * 1/3
  EXPECT_EQ(second.own(6), 2);
  EXPECT_EQ(second.begin(6), 4);
  EXPECT_THAT(second.local_shape(ValueId(0), kByRow), ElementsAre(2, 4));
  EXPECT_THAT(second.parts_of(4), ElementsAre(3, 1));                         // 2.67 and 1.33
  EXPECT_THAT(second.local_shape(ValueId(1), kInBlocks), ElementsAre(6, 2));  // 2 blocks of 1
  EXPECT_THAT(second.shape_on(0, ValueId(1), kInBlocks), ElementsAre(6, 6));
  // Pairs of rows split 2 and 1 of 3: the last two rows.
  const Range pairs = second.own_range({graph::FormKind::kSharded, 0, 1, 3, 2});
  EXPECT_EQ(pairs.first, 4);
  EXPECT_EQ(pairs.count, 2);
}

TEST_F(RankStepTest, ConvertsAValueOnce) {
  const ShardedStep step = plan_step(graph_, sharding_, rules_, {});
  RankStep rank = step_of(step, 0);
  EXPECT_EQ(rank.in_form(ValueId(0), kByRow), rank.value(ValueId(0)));
  rank.start_conversion(ValueId(0), graph::kWholeForm);
  const BufferId whole = rank.in_form(ValueId(0), graph::kWholeForm);
  EXPECT_EQ(rank.in_form(ValueId(0), graph::kWholeForm), whole);
  EXPECT_THAT(rank.builder().buffer(whole).shape, ElementsAre(6, 4));
  std::vector<std::string> made;
  for (const program::Instruction& each : rank.builder().finish().instructions)
    made.push_back(each.op);
  EXPECT_THAT(made, ElementsAre("motley::cut", "motley::all_gather", "motley::unpack"));
}

TEST_F(RankStepTest, GathersParametersTogether) {
  const ShardedStep step = plan_step(graph_, sharding_, rules_, {});
  ASSERT_EQ(step.gathers.size(), 1U);
  RankStep rank = step_of(step, 1);
  const BufferId flat = start_exchange(rank, step.gathers[0], "parameters");
  // Device 0: 4 rows of 4, and 6 rows of 2 * 3; device 1: 2 rows of 4, and 6 rows of 2 * 1.
  EXPECT_THAT(rank.builder().buffer(flat).shape, ElementsAre((16 + 36) + (8 + 12)));
  const std::vector<BufferId> wholes = finish_exchange(rank, step.gathers[0], flat, "parameters");
  ASSERT_EQ(wholes.size(), 2U);
  EXPECT_THAT(rank.builder().buffer(wholes[0]).shape, ElementsAre(6, 4));
  EXPECT_THAT(rank.builder().buffer(wholes[1]).shape, ElementsAre(6, 8));
  std::vector<std::string> made;
  const program::DeviceProgram device = rank.builder().finish();
  for (const program::Instruction& each : device.instructions) made.push_back(each.op);
  // Rows are joined directly; blocks as [12, 4], viewed as [6, 8].
  EXPECT_THAT(made, ElementsAre("motley::pack", "motley::all_gather", "motley::unpack", "aten::cat",
                                "aten::cat", "aten::view"));
  EXPECT_EQ(program::print_argument(device.instructions[1].arguments[1]), "[52, 20]");
  EXPECT_EQ(program::print_argument(device.instructions[3].arguments[1]), "0");
  EXPECT_THAT(device.buffer(device.instructions[4].outputs[0]).shape, ElementsAre(12, 4, 1));
}

TEST_F(RankStepTest, KnowsWhatIsWantedBeforehand) {
  const ShardedStep step = plan_step(graph_, sharding_, rules_, {});
  // The first operator needs both whole: in one bucket, at the start.
  EXPECT_THAT(step.wanted[0], ElementsAre(graph::kWholeForm));
  EXPECT_THAT(step.wanted[2], IsEmpty());
  EXPECT_EQ(step.gathers[0].ready, 0);
  EXPECT_EQ(step.gathers[0].items.size(), 2U);
  // Each has more than 80 bytes.
  LowerOptions options;
  options.bucket_bytes = Bytes(80);
  EXPECT_EQ(plan_step(graph_, sharding_, rules_, options).gathers.size(), 2U);
}

}  // namespace
}  // namespace motley::synth
