#include "peers/hap/named_clusters.h"

#include <gtest/gtest.h>

#include "peers/hap/published_models.h"

namespace motley::peers {
namespace {

std::string fault_of(std::string_view text) {
  const auto cluster = make_named_cluster(text);
  return cluster ? "" : cluster.error().message;
}

TEST(NamedClusters, AreThePublishedOnes) {
  const auto mixed = make_named_cluster("v100-p100:8").value();
  EXPECT_EQ(mixed.devices, (std::vector<std::string>{"v100:0", "v100:1", "p100:0", "p100:1",
                                                     "p100:2", "p100:3", "p100:4", "p100:5"}));
  EXPECT_EQ(mixed.rates.device_flops, make_v100_p100_cluster(8).device_flops);
  EXPECT_EQ(make_named_cluster("v100-p100")->name, "v100-p100:8");
  EXPECT_EQ(make_named_cluster("equal:3")->rates.device_flops.size(), 3u);
}

TEST(NamedClusters, OthersAreAnswered) {
  const std::string wanted =
      ", wanted v100-p100:N (one V100 to three P100, N a multiple of 4) or equal:N, N from 1 to "
      "4096";
  EXPECT_EQ(fault_of("v100-p10"),
            "HAP's cluster 'v100-p10': unknown name, did you mean "
            "'v100-p100'?" +
                wanted);
  EXPECT_EQ(fault_of("v100-p100:6"), "HAP's cluster 'v100-p100:6': not a multiple of 4" + wanted);
  EXPECT_EQ(fault_of("equal:0"), "HAP's cluster 'equal:0': no such number of devices" + wanted);
  EXPECT_EQ(fault_of("equal:x"), "HAP's cluster 'equal:x': no such number of devices" + wanted);
}

/// One node with the devices `first`, or two with `second` on the other, joined by `link`.
cluster::Cluster make_cluster(const std::string& first, const std::string& second,
                              const std::string& link) {
  const auto cluster = cluster::parse_cluster(
      "schema = \"motley.cluster/1\"\nname = \"lab\"\n[[node]]\nname = \"a\"\n" + first +
          (second.empty() ? "" : "[[node]]\nname = \"b\"\n" + second) + link,
      "lab");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return *cluster;
}

std::vector<DeviceId> all_of(const cluster::Cluster& cluster) {
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    devices.emplace_back(static_cast<std::int64_t>(i));
  return devices;
}

TEST(ViewAsHap, TakesKindsAndTheSlowestLink) {
  const cluster::Cluster lab = make_cluster(
      "[[node.device]]\nkind = \"v100-16g\"\n", "[[node.device]]\nkind = \"p100\"\ncount = 3\n",
      "[[link]]\nall = true\nbandwidth = \"8Gbps\"\nlatency = \"20us\"\n");
  const auto view = view_as_hap(lab, all_of(lab)).value();
  EXPECT_EQ(view.name, "lab");
  EXPECT_EQ(view.devices, (std::vector<std::string>{"a:0", "b:0", "b:1", "b:2"}));
  // A quarter of 15.7 and 9.3 Tflop/s.
  EXPECT_DOUBLE_EQ(view.rates.device_flops[0], 3.925e12);
  EXPECT_DOUBLE_EQ(view.rates.device_flops[3], 2.325e12);
  // B = 1e9 bytes per second, n = 4, k = 3: 4/3, half of it, and 16 / (3 * 1) for all-to-all.
  const CollectiveRates& rates = view.rates.bytes_per_second;
  EXPECT_DOUBLE_EQ(rates.all_gather, 4e9 / 3);
  EXPECT_DOUBLE_EQ(rates.reduce_scatter, 4e9 / 3);
  EXPECT_DOUBLE_EQ(rates.all_reduce, 2e9 / 3);
  EXPECT_DOUBLE_EQ(rates.all_to_all, 16e9 / 3);
  EXPECT_DOUBLE_EQ(rates.grouped_all_gather, 1e9);
  EXPECT_DOUBLE_EQ(view.latency.value, 60e-6);
}

TEST(ViewAsHap, WithinOneMachineTheDevicesOwnLinksCount) {
  // A P100 without peer links has PCIe 3.0 x16: 8 * 16 * 128 / 130 / 8 GB/s.
  const cluster::Cluster lab =
      make_cluster("[[node.device]]\nkind = \"p100\"\ncount = 2\n", "", "");
  const auto view = view_as_hap(lab, all_of(lab)).value();
  EXPECT_NEAR(view.rates.bytes_per_second.grouped_all_gather, 16e9 * 128 / 130, 1);
  EXPECT_EQ(view.latency.value, 0);
}

TEST(ViewAsHap, SaysWhatIsMissing) {
  const cluster::Cluster lab =
      make_cluster("[[node.device]]\nkind = \"v100-16g\"\n", "[[node.device]]\nkind = \"cpu\"\n",
                   "[[link]]\nall = true\nbandwidth = \"8Gbps\"\n");
  EXPECT_EQ(view_as_hap(lab, all_of(lab)).error().message,
            "b:0: HAP needs the flops of its kind, and 'cpu' has none in the table; give a "
            "planning kind such as v100-16g");
  EXPECT_EQ(view_as_hap(lab, {DeviceId(0)}).error().message,
            "HAP splits work over two devices or more; found 1");
}

}  // namespace
}  // namespace motley::peers
