#include "motley/search/split/explain.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "motley/search/split/split_search.h"
#include "motley/testing/toy_problem.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;

void add_identical(ToyProblem& toy, int count, double seconds) {
  for (int i = 0; i < count; ++i) toy.add_device(linear_device(seconds));
}

std::vector<std::string> explained(const ToyProblem& toy, const BatchSplit& split) {
  const auto space = SplitSpace::make(toy.problem, *toy.evaluator);
  EXPECT_TRUE(space) << space.error().message;
  return explain_split(*space, split, plan::idle_devices(toy.problem, split.devices));
}

BatchSplit split_of(const std::vector<std::int64_t>& samples) {
  BatchSplit split;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    if (samples[i] == 0) continue;
    split.devices.emplace_back(static_cast<std::int64_t>(i));
    split.samples.push_back(samples[i]);
  }
  return split;
}

// 1 s per sample on two devices and 4 s on three: 7, 8 and 1 samples. The fast pair ends last, at 8
// s, one of them 1 s earlier; the slow ones take 4 s.
TEST(ExplainSplit, DevicesOfAKindShareASentence) {
  ToyProblem toy;
  toy.group = no_exchange;
  add_identical(toy, 2, 1);
  add_identical(toy, 3, 4);
  toy.finish(18);
  EXPECT_THAT(
      explained(toy, split_of({7, 8, 1, 1, 1})),
      ElementsAre("n0:0 and n1:0 get 7 to 8 of 18 samples each: each is 4.0x as fast as "
                  "n2:0",
                  "n2:0, n3:0 and n4:0 get 1 of 18 samples each", "binding: compute on n1:0"));
}

// 8, 8 and 7.9 s, which is within 2 % of the last: 1.25 % earlier.
TEST(ExplainSplit, WhoIsAlmostLastBindsToo) {
  ToyProblem toy;
  toy.group = no_exchange;
  add_identical(toy, 1, 1);
  toy.add_device(linear_device(1, -0.1));
  toy.finish(16);
  EXPECT_THAT(explained(toy, split_of({8, 8})).back(),
              "binding: compute on all devices, balanced to 1.2 %");
}

// Ten kinds, eight of which get a sentence; then the same with idle kinds.
TEST(ExplainSplit, TellsOfEightKinds) {
  ToyProblem toy;
  toy.group = no_exchange;
  for (int i = 0; i < 10; ++i) toy.add_device(linear_device(1 + i));
  toy.finish(10);
  const auto all = explained(toy, split_of(std::vector<std::int64_t>(10, 1)));
  ASSERT_EQ(all.size(), 8u + 1 + 1);
  EXPECT_EQ(all[7], "n7:0 gets 1 of 10 samples: it is 1.2x as fast as n9:0");  // 8 s and 10 s
  EXPECT_EQ(all[8], "2 more kinds of devices get the rest");
  EXPECT_EQ(all[9], "binding: compute on n9:0");
  const auto alone = explained(toy, split_of({10}));
  ASSERT_EQ(alone.size(), 1u + 8 + 1 + 1);
  EXPECT_EQ(alone[9], "1 more kinds of devices stay idle");
}

// Alone 4 samples take 4 s; with an identical device 2 s, which the asking planner did not want.
TEST(ExplainSplit, AnIdleDeviceMightHelp) {
  ToyProblem toy;
  toy.group = no_exchange;
  add_identical(toy, 2, 1);
  toy.finish(4);
  EXPECT_THAT(explained(toy, split_of({4, 0})),
              ElementsAre("n0:0 gets 4 of 4 samples",
                          "n1:0 stays idle: with it the step would be no shorter",
                          "binding: compute on n0:0, which works alone"));
}

// One sample each and none for a third device; both work to the end.
TEST(ExplainSplit, NoSampleIsLeft) {
  ToyProblem toy;
  toy.group = no_exchange;
  add_identical(toy, 3, 1);
  toy.finish(2);
  EXPECT_THAT(explained(toy, split_of({1, 1, 0})),
              ElementsAre("n0:0 and n1:0 get 1 of 2 samples each",
                          "n2:0 stays idle: no sample is left for it",
                          "binding: compute on all devices, balanced to 0.0 %"));
}

// Gradients are ready after 1 s per sample, the exchange takes 3 s: 2 + 3 s, 2 s of it compute.
TEST(ExplainSplit, AnExchangeMayBind) {
  ToyProblem toy = pair_with_exchange(3);
  toy.finish(4);
  EXPECT_EQ(explained(toy, split_of({2, 2})).back(),
            "binding: exchange of gradients with all devices, balanced to 0.0 %");
}

// Two devices hold 3 samples of a GiB each; the batch's limit of 3 per device is no lack.
TEST(ExplainSplit, FullDevicesAreTold) {
  ToyProblem toy;
  toy.group = no_exchange;
  TableEvaluator::Device device = linear_device(1);
  device.per_sample = Bytes(std::int64_t{1} << 30);
  for (int i = 0; i < 2; ++i) toy.add_device(device, Bytes(std::int64_t{3} << 30));
  add_identical(toy, 1, 2);
  toy.finish(8);
  EXPECT_THAT(explained(toy, split_of({3, 3, 2})),
              ::testing::Contains("n0:0 and n1:0 are full: 3 samples need 3 GiB of 3 GiB"));
  toy.problem.max_samples = 3;
  EXPECT_THAT(explained(toy, split_of({3, 3, 2})),
              ::testing::Not(::testing::Contains(::testing::HasSubstr("full"))));
}

}  // namespace
}  // namespace motley::search
