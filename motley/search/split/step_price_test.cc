#include "motley/search/split/step_price.h"

#include <gtest/gtest.h>

#include "motley/search/split/split_planner.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

StepPrice price_of(std::int64_t figure) {
  StepPrice price{Seconds(static_cast<double>(figure) / 1e9), figure, {DevicePrice()}};
  price.devices[0].memory.total = Bytes(figure);
  price.devices[0].memory.largest = {{BufferId(0), Bytes(7)}};
  price.devices[0].largest = {"w"};
  price.devices[0].peak_at = "aten::mm";
  return price;
}

TEST(ContinueLine, EveryMicroBatchAddsWhatTheLastDid) {
  const auto far = continue_line({price_of(100), price_of(130), price_of(160)}, 10);
  ASSERT_TRUE(far);
  EXPECT_EQ(far->step, Seconds(460 / 1e9));
  EXPECT_EQ(far->instructions, 460);
  EXPECT_EQ(far->devices[0].memory.total, Bytes(460));
  EXPECT_EQ(far->devices[0].memory.largest[0].second, Bytes(7));
  EXPECT_EQ(far->devices[0].largest[0], "w");
}

TEST(ContinueLine, ThereIsNoneWhereTheLastAddsAByteMore) {
  std::vector<StepPrice> three{price_of(100), price_of(130), price_of(160)};
  three[2].devices[0].memory.total += Bytes(1);
  EXPECT_FALSE(continue_line(three, 10));
}

// With 3, 4 and 5 micro-batches it waits 21, 11 and 1: with 6 the others will wait for it.
TEST(ContinueLine, ThereIsNoneWhereADeviceHasEverLessToWait) {
  std::vector<StepPrice> three{price_of(100), price_of(130), price_of(160)};
  for (std::size_t i = 0; i < 3; ++i)
    three[i].devices[0].parts.waiting = 21 - 10 * static_cast<std::int64_t>(i);
  EXPECT_FALSE(continue_line(three, 10));
}

TEST(ContinueLine, ThereIsNoneWhereThePeakMoves) {
  std::vector<StepPrice> three{price_of(100), price_of(130), price_of(160)};
  three[0].devices[0].peak_at = "aten::relu";
  EXPECT_FALSE(continue_line(three, 10));
}

using StepPriceTest = WideMlpTest;

// 16 micro-batches priced from 3, 4 and 5 equal their program, to the nanosecond and the byte.
TEST_F(StepPriceTest, ALineIsThePriceOfTheWholeProgram) {
  set_up(256, "", 128);
  plan::Plan plan = make_split_plan(problem_, {problem_.devices, {96, 32}});
  for (plan::Replica& replica : plan.replicas) replica.micro_batches = 16;
  const auto by_line = evaluator_->price_parts(plan);
  ASSERT_TRUE(by_line) << by_line.error().message;
  const auto program = synth::lower(model_.graph, plan, cluster_);
  ASSERT_TRUE(program) << program.error().message;
  const auto owned = costs_.model(cluster_);
  const cost::CostModel& model = *owned;
  const std::vector<std::string> names{program->devices[0].device, program->devices[1].device};
  const auto whole = price_program(*program, names, model, model.all_times(*program).value());
  ASSERT_TRUE(whole) << whole.error().message;
  EXPECT_EQ(by_line->step, whole->price.step);
  EXPECT_EQ(by_line->kinds.instructions, whole->price.instructions);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const DevicePrice& found = by_line->kinds.devices[by_line->of_rank[rank]];
    const DevicePrice& wanted = whole->price.devices[rank];
    EXPECT_EQ(found.parts, wanted.parts);
    EXPECT_EQ(found.memory.total, wanted.memory.total);
    EXPECT_EQ(found.memory.inputs, wanted.memory.inputs);
    EXPECT_EQ(found.memory.activations, wanted.memory.activations);
    EXPECT_EQ(found.peak_at, wanted.peak_at);
    EXPECT_EQ(found.largest, wanted.largest);
  }
}

}  // namespace
}  // namespace motley::search
