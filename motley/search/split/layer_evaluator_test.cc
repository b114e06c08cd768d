#include "motley/search/split/layer_evaluator.h"

#include <gmock/gmock.h>

#include <utility>

namespace motley::search {
namespace {

using ::testing::ElementsAre;
using Setting = SplitEvaluator::Setting;
using Points = std::vector<std::pair<double, double>>;

/// Two nodes of a device each, behind a link of 1 GB/s without latency.
cluster::Cluster two_nodes(const std::string& first, const std::string& second) {
  auto cluster = cluster::parse_cluster(
      "schema = \"motley.cluster/1\"\nname = \"two\"\n"
      "[[node]]\nname = \"a\"\nhost = \"h1\"\n[[node.device]]\nkind = \"" +
          first + "\"\n[[node]]\nname = \"b\"\nhost = \"h2\"\n[[node.device]]\nkind = \"" + second +
          "\"\n[[link]]\nall = true\nbandwidth = \"8Gbps\"\n",
      "two");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return *std::move(cluster);
}

cost::LayerTime layer(double forward, double backward, double update) {
  return {Seconds(forward), Seconds(backward), Seconds(update)};
}

/// Two layers on t4, at micro-batches of 1 and 4; of a100-40g only with two tensor-parallel ones.
cost::LayerProfile two_layers_profile() {
  cost::LayerProfile profile;
  profile.model = "small";
  profile.times["t4"][1] = {{1, {layer(1, 2, 0.25), layer(2, 4, 0.5)}},
                            {4, {layer(3, 6, 0.5), layer(5, 10, 0.5)}}};
  profile.times["a100-40g"][2] = profile.times["t4"][1];
  profile.sizes[1] = {{0, Bytes(600), Bytes(1000), Bytes(10), Bytes(1)},
                      {0, Bytes(400), Bytes(3000), Bytes(30), Bytes(1)}};
  profile.sizes[2] = profile.sizes[1];
  return profile;
}

TEST(LayerEvaluator, SumsTheLayersUp) {
  const auto made = LayerEvaluator::make(two_layers_profile(), two_nodes("t4", "t4"));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->devices(), ElementsAre(DeviceId(0), DeviceId(1)));
  EXPECT_EQ(made->max_samples(), 8);  // twice what was profiled
  // Forward and backward: 1 + 2 + 2 + 4 s of one sample, 3 + 6 + 5 + 10 s of four. Updates do not
  // depend on samples: what was measured at one is no more than at four, 1 s.
  const StepCurves& shared = made->evaluator().curves(DeviceId(1), Setting::kShared);
  EXPECT_EQ(shared.end.points, (Points{{1, 9}, {4, 24}}));
  ASSERT_EQ(shared.ready.size(), 1u);
  EXPECT_EQ(shared.ready[0], shared.end);  // one exchange, of all gradients, at the end
  EXPECT_THAT(shared.update, ElementsAre(1));
  const StepCurves& alone = made->evaluator().curves(DeviceId(1), Setting::kAlone);
  EXPECT_EQ(alone.end.points, (Points{{1, 10}, {4, 25}}));
  EXPECT_TRUE(alone.ready.empty());
  // States of 4000 bytes and 40 of each sample.
  EXPECT_EQ(made->evaluator().peak_bytes(DeviceId(0), 3, Setting::kShared), Bytes(4120));
}

// A ring of two passes half of the 1000 bytes of gradients on, twice: 1000 ns at 1 GB/s, and what
// the ends of transfers cost. Twice the gradients take 1000 ns more.
TEST(LayerEvaluator, ExchangesAllGradientsOverTheLinks) {
  const auto seconds = [](std::int64_t times) {
    cost::LayerProfile profile = two_layers_profile();
    for (cost::LayerSize& size : profile.sizes[1]) size.gradients = size.gradients * times;
    const auto made = LayerEvaluator::make(profile, two_nodes("t4", "t4"));
    const GroupExchanges found = made->evaluator().group_times({DeviceId(0), DeviceId(1)});
    EXPECT_EQ(found.blocking, 0);
    EXPECT_EQ(found.exchange.size(), 1u);
    return found.exchange[0];
  };
  EXPECT_GT(seconds(1000), 1e-3);
  EXPECT_LT(seconds(1000), 2e-3);
  // A thousandth of the growth is what copies at the ends may add.
  EXPECT_NEAR(seconds(200'000) - seconds(100'000), 0.1, 0.02);
}

TEST(LayerEvaluator, DevicesOfOtherKindsAreLeftOut) {
  const auto made = LayerEvaluator::make(two_layers_profile(), two_nodes("a100-40g", "t4"));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->devices(), ElementsAre(DeviceId(1)));
}

TEST(LayerEvaluator, TheKindWithTheLeastSaysHowManySamplesThereMayBe) {
  cost::LayerProfile profile = two_layers_profile();
  profile.times["v100-16g"][1] = {{1, {layer(1, 1, 1), layer(1, 1, 1)}}};
  const auto made = LayerEvaluator::make(profile, two_nodes("t4", "v100-16g"));
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->max_samples(), 2);
}

TEST(LayerEvaluator, NamesTheKindsThatTheProfileHas) {
  const auto made = LayerEvaluator::make(two_layers_profile(), two_nodes("a100-40g", "a10"));
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().message,
            "no device of the cluster is of a kind that the layer profile of small has without "
            "tensor parallelism: t4");
}

}  // namespace
}  // namespace motley::search
