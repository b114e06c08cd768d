#include "peers/hap/published_models.h"

#include <gtest/gtest.h>

#include "peers/hap/rules.h"

namespace motley::peers {
namespace {

/// Counts the flops of a step, forward and backward, on one device.
double counted_flops(const ReferenceGraph& graph) {
  const auto rules = make_rules(graph);
  EXPECT_TRUE(rules) << rules.error().message;
  double flops = 0;
  for (const OperatorRules& op : *rules) flops += op.flops;
  return flops;
}

// Integers below 2^53: sums are exact.
TEST(PublishedModels, HaveTheCountedFlops) {
  for (const double n : {8, 16, 32, 64}) {
    const auto devices = static_cast<std::int64_t>(n);
    EXPECT_EQ(counted_flops(make_bert(devices)), 3129716256768 * n);
    EXPECT_EQ(counted_flops(make_vit(devices)), 1086238405248 * n);
    EXPECT_EQ(counted_flops(make_vgg19(devices)), 47309405184 * n);
    EXPECT_EQ(counted_flops(make_bert_moe(devices)),
              (devices == 64 ? 5348605833216 : 4804684296192) * n);
  }
  EXPECT_EQ(counted_flops(make_bert(8, 2)), 10500817649664.0);
  EXPECT_EQ(counted_flops(make_bert(8, 4)), 13408200130560.0);
  EXPECT_EQ(counted_flops(make_bert(8, 8)), 19222965092352.0);
  EXPECT_EQ(counted_flops(make_bert(8, 24)), 42482024939520.0);
  EXPECT_EQ(counted_flops(make_vit(8, 2)), 1452958416384.0);
  EXPECT_EQ(counted_flops(make_vit(8, 4)), 2900348181504.0);
  EXPECT_EQ(counted_flops(make_vit(8, 8)), 5795127711744.0);
}

TEST(PublishedModels, HaveTheirParameters) {
  EXPECT_EQ(parameter_elements(make_bert(8)), 136320512.0);
  EXPECT_EQ(parameter_elements(make_vit(8)), 85150474.0);
  EXPECT_EQ(parameter_elements(make_vgg19(8)), 139611210.0);
  EXPECT_EQ(parameter_elements(make_bert_moe(8)), 561044480.0);
  EXPECT_EQ(parameter_elements(make_bert_moe(16)), 1014103040.0);
  EXPECT_EQ(parameter_elements(make_bert_moe(32)), 1920220160.0);
  EXPECT_EQ(parameter_elements(make_bert_moe(64)), 3732454400.0);
  EXPECT_EQ(parameter_elements(make_bert(8, 2)), 65441792.0);
  EXPECT_EQ(parameter_elements(make_bert(8, 24)), 221374976.0);
  EXPECT_EQ(parameter_elements(make_vit(8, 2)), 14271754.0);
  EXPECT_EQ(parameter_elements(make_vit(8, 8)), 56798986.0);
}

TEST(PublishedModels, ClustersHaveOneFastDeviceInFour) {
  const HapCluster cluster = make_v100_p100_cluster(8);
  EXPECT_EQ(cluster.device_flops,
            (std::vector<double>{3858755112937, 3858755112937, 2149250936815, 2149250936815,
                                 2149250936815, 2149250936815, 2149250936815, 2149250936815}));
  EXPECT_EQ(make_default_cluster(2).device_flops,
            (std::vector<double>{5966645808610, 5966645808610}));
}

}  // namespace
}  // namespace motley::peers
