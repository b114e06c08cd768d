#include "peers/hap/cost.h"

#include <gtest/gtest.h>

namespace motley::peers {
namespace {

/// Two devices of 3 and 1 flops per second; shares 3/4 and 1/4 pad by 1.5.
HapCluster make_cluster() {
  return {{3, 1},
          {.all_gather = 2,
           .all_reduce = 4,
           .reduce_scatter = 5,
           .all_to_all = 10,
           .grouped_all_gather = 1.6,
           .grouped_reduce_scatter = 2.5}};
}

const ReferenceTensor kTensor{"t", {1, 20, 2}, TensorRole::kActivation, true};
constexpr HapForm kWhole = HapForm::identity(), kPart = HapForm::reduce();

double conversion_seconds(HapForm from, HapForm to, const HapCostOptions& options = {}) {
  const HapCost cost(make_cluster(), options, {0.75, 0.25});
  const auto time = cost.conversion(kTensor, from, to);
  return time ? time->seconds(cost.effect()) : -1;
}

TEST(HapCost, SharesActThroughTheirLargest) {
  const ShareEffect effect = effect_of({0.75, 0.25}, make_cluster());
  EXPECT_EQ(effect.per_shared_flop, 0.25);
  EXPECT_EQ(effect.per_whole_flop, 1);
  EXPECT_EQ(effect.padding, 1.5);
  EXPECT_EQ(proportional_shares(make_cluster()), (Shares{0.75, 0.25}));
  const LinearTime time{.shared_flops = 8, .whole_flops = 2, .padded_s = 4, .constant_s = 1};
  EXPECT_EQ(time.seconds(effect), 8 * 0.25 + 2 * 1 + 4 * 1.5 + 1);
}

TEST(HapCost, ConversionsPayForwardAndBackward) {
  // 40 elements, padded to 60 per collective.
  EXPECT_DOUBLE_EQ(conversion_seconds(HapForm::gather(1), kWhole), 60.0 / 2 + 60.0 / 5);
  EXPECT_DOUBLE_EQ(conversion_seconds(kPart, HapForm::gather(2)), 60.0 / 5 + 60.0 / 2);
  EXPECT_DOUBLE_EQ(conversion_seconds(HapForm::gather(1), HapForm::gather(2)), 2 * 60.0 / 10);
  EXPECT_DOUBLE_EQ(conversion_seconds(kPart, kWhole), 2 * 40.0 / 4);
  EXPECT_EQ(conversion_seconds(kWhole, HapForm::gather(1)), 0);
  // A dimension of length 1 is whole on both devices: 80 elements with any shares.
  EXPECT_DOUBLE_EQ(conversion_seconds(HapForm::gather(0), kWhole), 80.0 / 2 + 80.0 / 5);
  EXPECT_EQ(conversion_seconds(kWhole, kPart), -1);
  EXPECT_EQ(conversion_seconds(HapForm::gather(1), kPart), -1);
  EXPECT_EQ(conversion_seconds(kWhole, kWhole), -1);
  EXPECT_EQ(conversion_seconds(HapForm::factored(), kWhole), -1);
}

TEST(HapCost, OptionsScaleGroupAndDelay) {
  // By owner 40 / 1.6 = 25 s, padded 30 s; 40 / 2.5 = 16 s, padded 12 s.
  EXPECT_DOUBLE_EQ(conversion_seconds(HapForm::gather(1), kWhole, {.may_group = true}), 25 + 12);
  EXPECT_DOUBLE_EQ(conversion_seconds(HapForm::gather(1), kWhole, {.bytes_per_element = 4}),
                   4 * (30 + 12));
  EXPECT_DOUBLE_EQ(conversion_seconds(HapForm::gather(1), kWhole, {.latency = Seconds(1)}),
                   30 + 12 + 2);
}

TEST(HapCost, OnlyWholeParametersCostToLoad) {
  const HapCost cost(make_cluster(), {}, {0.75, 0.25});
  const ReferenceTensor parameter{"p", {8}, TensorRole::kParameter};
  const ReferenceTensor input{"x", {8}, TensorRole::kInput};
  const auto seconds = [&cost](const ReferenceTensor& tensor, HapForm form) {
    const auto time = cost.load(tensor, form);
    return time ? time->seconds(cost.effect()) : -1;
  };
  EXPECT_EQ(seconds(parameter, kWhole), 8.0 / 4);
  EXPECT_EQ(seconds(parameter, HapForm::gather(0)), 0);
  EXPECT_EQ(seconds(parameter, HapForm::factored()), 0);
  EXPECT_EQ(seconds(parameter, kPart), -1);
  EXPECT_EQ(seconds(input, kWhole), 0);
  EXPECT_EQ(seconds(input, HapForm::gather(0)), 0);
  EXPECT_EQ(seconds(input, HapForm::factored()), -1);
  EXPECT_EQ(seconds(kTensor, kWhole), -1);
}

TEST(HapCost, FactorsAreGathered) {
  const HapCost cost(make_cluster(), {}, {0.75, 0.25});
  Triple triple;
  triple.shared_flops = 8;
  triple.whole_flops = 4;
  triple.factors = {10, 20};
  EXPECT_DOUBLE_EQ(cost.compute(triple).seconds(cost.effect()), 2 + 4 + 1.5 * (10 + 20) / 2);
}

}  // namespace
}  // namespace motley::peers
