#include "motley/cluster/probe.h"

#include <gtest/gtest.h>

#include <thread>

namespace motley::cluster {
namespace {

TEST(Probe, DescribesThisMachine) {
  const auto report = probe_this_machine();
  ASSERT_TRUE(report) << report.error().message;
  const Cluster& cluster = report->cluster;
  ASSERT_EQ(cluster.nodes.size(), 1U);
  EXPECT_EQ(cluster.nodes[0].host, "");
  ASSERT_FALSE(cluster.devices.empty());
  const Device& cpu = cluster.devices[0];
  EXPECT_EQ(cpu.kind, "cpu");
  EXPECT_GE(cpu.threads, 1);
  EXPECT_LE(cpu.threads, static_cast<int>(std::thread::hardware_concurrency()));
  ASSERT_TRUE(cpu.memory);
  EXPECT_GE(cpu.memory->value, 16 << 20);
  for (std::size_t i = 1; i < cluster.devices.size(); ++i) {
    EXPECT_EQ(cluster.devices[i].kind, "cuda");
    EXPECT_FALSE(cluster.devices[i].model.empty());
    EXPECT_EQ(cluster.devices[i].local_index, static_cast<int>(i) - 1);
  }
  EXPECT_GE(report->notes.size(), 3U);
}

TEST(Probe, ItsClusterFileReadsBack) {
  const auto report = probe_this_machine();
  ASSERT_TRUE(report) << report.error().message;
  const auto again = parse_cluster(print_cluster(report->cluster), "probed");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, report->cluster);
}

}  // namespace
}  // namespace motley::cluster
