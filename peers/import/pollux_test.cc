#include "peers/import/pollux.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace motley::peers {
namespace {

using ::testing::ElementsAre;

std::string write(const std::string& name, const std::string& text) {
  const std::string path = ::testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(Pollux, APlacementHasOneDigitAHost) {
  const std::string path = write(
      "placements.csv", "placement,local_bsz,step_time,sync_time\n1,32,0.5,0.1\n124,32,0.75,0.1\n");
  const auto samples = read_pollux_placements(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(samples.has_value()) << samples.error().message;
  EXPECT_THAT(*samples, ElementsAre(DataParallelSample{1, 1, 32, Seconds(0.5)},
                                    DataParallelSample{3, 7, 32, Seconds(0.75)}));
}

TEST(Pollux, APlacementOfOtherSignsIsNamed) {
  const std::string path =
      write("bad_placements.csv",
            "placement,local_bsz,step_time,sync_time\n1,32,0.5,0.1\n1x,32,0.75,0.1\n");
  const auto samples = read_pollux_placements(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(samples.has_value());
  EXPECT_EQ(
      samples.error().message,
      path + ":3: column 'placement': found '1x', wanted one digit from 1 to 9 for each machine");
}

TEST(Pollux, ScalabilityNamesHostsAndReplicas) {
  const std::string path = write(
      "scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,20,4,1.5,1\n");
  const auto samples = read_pollux_scalability(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(samples.has_value()) << samples.error().message;
  EXPECT_THAT(*samples, ElementsAre(DataParallelSample{6, 20, 4, Seconds(1.5)}));
}

TEST(Pollux, FewerReplicasThanHostsAreNamed) {
  const std::string path = write(
      "bad_scalability.csv", "num_nodes,num_replicas,local_bsz,step_time,sync_time\n6,5,4,1.5,1\n");
  const auto samples = read_pollux_scalability(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(samples.has_value());
  EXPECT_EQ(
      samples.error().message,
      path + ":2: column 'num_replicas': found '5', wanted at least one replica on each machine");
}

}  // namespace
}  // namespace motley::peers
