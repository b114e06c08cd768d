#include "motley/search/price/costs.h"

#include <gtest/gtest.h>

#include <map>

#include "motley/base/file.h"
#include "motley/graph/graph_text.h"
#include "motley/program/program_text.h"
#include "motley/search/price/profile_batches.h"

namespace motley::search {
namespace {

constexpr std::int64_t kBatch = 64;
constexpr const char* kCluster = R"(schema = "motley.cluster/1"
name = "two"
[[node]]
name = "a"
  [[node.device]]
  kind = "rtx4090"
[[node]]
name = "b"
  [[node.device]]
  kind = "mi300x"
[[link]]
all = true
bandwidth = "10Gbps"
latency = "50us"
)";

/// The golden MLP, two kinds that are not here, and a store.
class CostsTest : public ::testing::Test {
 protected:
  CostsTest() {
    model_.graph =
        graph::parse_graph(*read_file(MOTLEY_SOURCE_DIR "/tests/golden/synth/mlp.graph.txt"), "mlp")
            .value();
    model_.hash = "00000000000000aa";
    cluster_ = cluster::parse_cluster(kCluster, "two").value();
    options_ = {.lowering = {},
                .torch = "2.15.0",
                .global_batch = kBatch,
                .devices = {DeviceId(0), DeviceId(1)}};
  }

  /// Every operator takes `seconds`.
  void profile(const cost::DeviceKey& key, double seconds, std::int64_t batch = kBatch) {
    const auto batches = profile_batches(batch, 4096);
    std::map<std::string, cost::OpEntry> entries;
    for (const std::int64_t samples : batches)
      for (const int ranks : {1, 2}) {
        const auto program =
            synth::lower_first(model_.graph, {samples, ranks}, options_.lowering).value();
        const auto works = cost::instruction_work(program, model_.graph);
        for (std::size_t i = 0; i < program.instructions.size(); ++i) {
          const std::string name = program::cost_key(program, program.instructions[i]);
          entries[name] = {.device = key,
                           .key = name,
                           .median = Seconds(seconds),
                           .samples = 3,
                           .work = works[i]};
        }
      }
    std::vector<cost::OpEntry> list;
    for (const auto& [name, entry] : entries) list.push_back(entry);
    ASSERT_TRUE(store_.put(list));
    ASSERT_TRUE(store_.put_batches(profile_subject(model_.hash, options_.lowering), key, batches));
  }

  Costs costs() const { return load_costs(model_, cluster_, store_, options_).value(); }
  /// Of the first device alone.
  static Seconds step(const Costs& costs) { return costs.devices.at("a:0").alone->total(kBatch); }

  graph::Model model_;
  cluster::Cluster cluster_;
  CostOptions options_;
  cost::ProfileStore store_ = cost::ProfileStore::open(":memory:").value();
};

TEST_F(CostsTest, KindsWithoutAProfileHaveTheirFigures) {
  const Costs costs = this->costs();
  EXPECT_EQ(costs.grounds.at("a:0").origin, cost::Origin::kKinds);
  EXPECT_EQ(costs.grounds.at("a:0").text, "figures of rtx4090");
}

TEST_F(CostsTest, AProfileIsCarriedToAnotherKindOfItsVendor) {
  const Seconds by_figures = step(costs());
  profile({"NVIDIA GeForce RTX 3090", 8, "2.15"}, 1e-3);
  const Costs costs = this->costs();
  EXPECT_EQ(costs.grounds.at("a:0").origin, cost::Origin::kCarried);
  EXPECT_EQ(costs.grounds.at("a:0").text, "carried from NVIDIA GeForce RTX 3090");
  EXPECT_EQ(costs.grounds.at("b:0").text, "figures of mi300x");
  // All times are equal, so all of them are launch.
  EXPECT_GT(step(costs).value, 10 * by_figures.value);
}

TEST_F(CostsTest, TheNearestOfSeveralProfilesIsCarried) {
  profile({"NVIDIA H100 80GB HBM3", 1, "2.15"}, 1e-3);
  profile({"Tesla T4", 1, "2.15"}, 1e-3);
  profile({"NVIDIA GeForce RTX 4080", 1, "2.15"}, 1e-3);
  profile({"cpu", 1, "2.15"}, 1e-3);
  EXPECT_EQ(costs().grounds.at("a:0").text, "carried from NVIDIA GeForce RTX 4080");
}

TEST_F(CostsTest, OtherVersionsAndSmallerProfilesAreNotCarried) {
  profile({"NVIDIA H100 80GB HBM3", 1, "2.14"}, 1e-3);
  profile({"Tesla T4", 1, "2.15"}, 1e-3, kBatch / 2);
  EXPECT_EQ(costs().grounds.at("a:0").origin, cost::Origin::kKinds);
}

}  // namespace
}  // namespace motley::search
