#include "motley/search/spmd/study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

class SpmdStudyTest : public WideMlpTest {
 protected:
  SpmdStudy study(std::int64_t batch, std::int64_t micro_batches = 1) {
    set_up(256, "", batch);
    question_ = {&model_.graph, &cluster_, &costs_, {}, batch, problem_.devices, {}};
    question_.micro_batches = micro_batches;
    auto made = SpmdStudy::make(question_);
    EXPECT_TRUE(made) << made.error().message;
    return *std::move(made);
  }
  SpmdQuestion question_;
};

TEST_F(SpmdStudyTest, AWholeStepIsTheSumOfItsOperators) {
  const SpmdStudy made = study(4096);
  double speed = 0;
  for (const int kind : {0, 1}) {
    const WholeStep& whole = made.whole_step(kind);
    ASSERT_EQ(whole.seconds.size(), model_.graph.ops.size());
    double sum = 0;
    for (std::size_t op = 0; op < whole.seconds.size(); ++op) {
      sum += whole.seconds[op];
      EXPECT_GE(whole.seconds[op], whole.launch[op]) << op;
    }
    EXPECT_DOUBLE_EQ(whole.total, sum);
    EXPECT_EQ(whole.launch[5], 0);  // a view
    EXPECT_LE(made.whole_step(kind, Estimate::kLeast).total, sum);
    EXPECT_DOUBLE_EQ(made.speeds()[static_cast<std::size_t>(kind)], 1 / sum);
    EXPECT_NE(1 / sum, speed);  // unlike devices
    speed = 1 / sum;
  }
}

// Half the samples at a time; at this size a product takes half as long.
TEST_F(SpmdStudyTest, StepsAreOfAMicroBatch) {
  const SpmdStudy whole = study(65536);
  EXPECT_TRUE(whole.programs().back().accumulations.empty());
  const double all = whole.whole_step(0).total;
  const SpmdStudy half = study(65536, 2);
  ASSERT_EQ(half.programs().back().accumulations.size(), 1u);
  EXPECT_EQ(half.programs().back().accumulations[0].micro_batches, 2);
  EXPECT_EQ(half.space().global_batch, 32768);
  EXPECT_NEAR(half.whole_step(0).total, all / 2, 0.02 * all);
}

// Only empty parts of extents (64 samples, 256 columns) distinguish shares.
TEST_F(SpmdStudyTest, ChoicesAreMadeOnceForSharesIdentical) {
  SpmdStudy made = study(64);
  const SpmdChoices* even = &made.choices({1, 1});
  EXPECT_EQ(&made.choices({3, 1}), even);
  EXPECT_EQ(&even->space, &made.space());
  const SpmdChoices* uneven = &made.choices({200, 1});  // 64 / 201 is rounded to 0
  EXPECT_NE(uneven, even);
  EXPECT_EQ(&made.choices({190, 1}), uneven);
  EXPECT_NE(&made.choices({1, 0}), uneven);  // also of 256
  EXPECT_EQ(&made.choices({1, 2}), even);
}

TEST_F(SpmdStudyTest, ExchangesOfAGroupAreRememberedAndThoseOfOthersApart) {
  SpmdStudy made = study(64);
  ExchangeTimes& both = made.exchanges(problem_.devices);
  EXPECT_EQ(&made.exchanges(problem_.devices), &both);
  EXPECT_NE(&made.exchanges({DeviceId(0)}), &both);
  EXPECT_EQ(made.exchanges({DeviceId(0)}).at("motley::all_reduce", 1e6), 0);
  EXPECT_GT(both.at("motley::all_reduce", 1e6), 0);
}

TEST_F(SpmdStudyTest, AShardingIsAChoiceOnDevices) {
  SpmdStudy made = study(64, 2);
  const SpmdChoices& choices = made.choices({3, 1});
  const std::vector<int> first(choices.problem.layout().domains.size(), 0);
  const synth::Sharding sharding = made.sharding(choices, first, problem_.devices, {3, 1});
  EXPECT_EQ(sharding.devices, (std::vector<std::string>{"a:0", "b:0"}));
  EXPECT_EQ(sharding.shares, (std::vector<double>{3, 1}));
  EXPECT_EQ(sharding.batch, 32);
  EXPECT_EQ(sharding.micro_batches, 2);
  for (const graph::Strategy& way : sharding.ops) EXPECT_EQ(way.factor, -1);  // the first is whole
}

TEST_F(SpmdStudyTest, SaysWhatCannotBeDoneInMicroBatches) {
  set_up(256, "", 64);
  question_ = {&model_.graph, &cluster_, &costs_, {}, 64, problem_.devices, {}};
  question_.micro_batches = 3;
  const auto made = SpmdStudy::make(question_);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, "synth.accumulation");
  EXPECT_EQ(made.error().message,
            "wide: a step cannot be done in 3 micro-batches: the global batch is 64");
}

}  // namespace
}  // namespace motley::search
