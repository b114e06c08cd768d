#include "motley/search/spmd/device_kinds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"

namespace motley::search {
namespace {

cluster::Cluster two_and_one() {
  return *cluster::parse_cluster("schema = \"motley.cluster/1\"\nname = \"c\"\n" +
                                     node_text("a", "h1", "kind = \"t4\"\ncount = 2") +
                                     node_text("b", "h2", "kind = \"a10\"") +
                                     "[[link]]\nall = true\nbandwidth = \"1Gbps\"\n",
                                 "c");
}

TEST(DeviceKinds, PutsDevicesOfEqualCostsTogether) {
  const InventedProfile invented(synth::read_graph("mlp"), two_and_one(), 4);
  const auto devices = invented.problem().devices;
  const auto kinds = DeviceKinds::find(invented.cluster(), invented.costs(), devices);
  ASSERT_TRUE(kinds) << kinds.error().message;
  ASSERT_EQ(kinds->all().size(), 2u);
  EXPECT_EQ(kinds->at(0).devices, (std::vector{DeviceId(0), DeviceId(1)}));
  EXPECT_EQ(kinds->of(DeviceId(2)), 1);
  // Equal shares give one class of two, unequal ones a class each.
  EXPECT_THAT(kinds->classes(devices, {2, 2, 1}).of_rank, ::testing::ElementsAre(0, 0, 1));
  EXPECT_THAT(kinds->classes(devices, {2, 1, 1}).of_rank, ::testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(kinds->classes(devices, {2, 2, 1}).all[0], (DeviceClass{0, 0, 2}));
}

TEST(DeviceKinds, TellsEmulatedDevicesApart) {
  const InventedProfile invented(synth::read_graph("mlp"), three_devices("emulated"), 4);
  const auto kinds =
      DeviceKinds::find(invented.cluster(), invented.costs(), invented.problem().devices);
  ASSERT_TRUE(kinds) << kinds.error().message;
  ASSERT_EQ(kinds->all().size(), 3u);
  for (const double bytes : {1e2, 1e4, 1e6}) {
    const cost::OperatorWork work{2 * bytes, bytes, 1};
    EXPECT_LE(kinds->at(0).seconds(Estimate::kLeast, "aten::mm", DType::kF32, work),
              kinds->at(0).seconds(Estimate::kUsual, "aten::mm", DType::kF32, work));
  }
}

TEST(DeviceKinds, NamesADeviceOfWhichTooLittleIsKnown) {
  const InventedProfile invented(synth::read_graph("mlp"), two_and_one(), 4);
  Costs costs = invented.costs();
  costs.by_work.erase("a:1");
  EXPECT_EQ(
      DeviceKinds::find(invented.cluster(), costs, invented.problem().devices).error().message,
      "too little was measured on a:1 to say what parts of operators take; run `motley "
      "profile` with this model and cluster");
}

}  // namespace
}  // namespace motley::search
