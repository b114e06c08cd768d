#include "motley/search/price/costs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "motley/base/file.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/graph/graph_text.h"
#include "motley/program/program_text.h"
#include "motley/search/price/profile_batches.h"
#include "motley/testing/places.h"

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

/// The golden MLP, two device kinds that are not present, and a store.
class CostsTest : public ::testing::Test {
 protected:
  CostsTest() {
    model_.graph = graph::parse_graph(
                       *read_file(testing::source_path("tests/golden/synth/mlp.graph.txt")), "mlp")
                       .value();
    model_.hash = "00000000000000aa";
    cluster_ = cluster::parse_cluster(kCluster, "two").value();
    options_ = {.lowering = {},
                .torch = "2.15.0",
                .global_batch = kBatch,
                .devices = {DeviceId(0), DeviceId(1)}};
  }

  /// Adds a profile in which every operator takes `seconds`.
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
  /// Returns the step of the first device alone.
  static Seconds step(const Costs& costs) {
    return costs.devices.at("a:0").alone.table->total(kBatch);
  }

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
  // All times are equal, so they are launch overhead.
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

/// CPU devices at 3/4 and 1/4 of full speed, 1 ms per operator, on one or two hosts.
class CpuCostsTest : public CostsTest {
 protected:
  explicit CpuCostsTest(bool is_one_host = true) {
    const std::string device = "\n[[node.device]]\nkind = \"cpu\"\nspeed = ";
    cluster_ =
        cluster::parse_cluster(
            "schema = \"motley.cluster/1\"\nname = \"two\"\n[[node]]\nname = \"a\"\nhost = "
            "\"h1\"" +
                device + "0.75\n[[node]]\nname = \"b\"\nhost = \"" + (is_one_host ? "h1" : "h2") +
                "\"" + device + "0.25\n" + "[[link]]\nall = true\nbandwidth = \"10Gbps\"\n",
            "two")
            .value();
  }

  std::string message() const {
    const auto loaded = load_costs(model_, cluster_, store_, options_);
    EXPECT_FALSE(loaded);
    return loaded ? "" : loaded.error().message;
  }
  void profile_all(std::int64_t batch = kBatch) {
    for (const DeviceId id : options_.devices) {
      profile(cost::device_key(cluster_.device(id), options_.torch), 1e-3, batch);
      profile(cost::shared_key(cluster_, id, options_.torch), 1e-3, batch);
    }
  }
  /// Adds a measured whole step of a device beside the other, with a spread.
  void measure_step(DeviceId id, double seconds, double spread = 0) {
    cost::OpEntry step = cost::step_entry(cost::emulated_key(cluster_, id, options_.torch),
                                          profile_subject(model_.hash, options_.lowering), kBatch);
    step.median = Seconds(seconds);
    step.spread = spread;
    step.samples = 5;
    ASSERT_TRUE(store_.put(std::vector{step}));
  }
  /// Counts the instructions that one of two devices computes.
  double instructions() const {
    const auto program = synth::lower_first(model_.graph, {kBatch, 2}, options_.lowering).value();
    double count = 0;
    for (const auto& each : program.instructions) count += each.lane == Lane::kCompute ? 1 : 0;
    return count;
  }
};

TEST_F(CpuCostsTest, NamesWhatIsProfiledAndWhatIsWanted) {
  EXPECT_EQ(message(),
            "model 'mlp' has no profile on cpu with threads = 1 and PyTorch 2.15, wanted up to "
            "batch 64; run `motley profile -m MODEL -C CLUSTER --global-batch 64`");
  profile_all(32);
  EXPECT_EQ(message(),
            "model 'mlp' has a profile up to batch 32 on cpu with threads = 1 and PyTorch 2.15, "
            "wanted up to batch 64; run `motley profile -m MODEL -C CLUSTER --global-batch 64`");
}

// The faster one's usual part is three quarters of the batch, so its steps are measured at that.
TEST_F(CpuCostsTest, WholeStepsAreWantedOfDevicesThatShareAHost) {
  profile_all();
  EXPECT_EQ(message(),
            "model 'mlp' has no profile on cpu at 0.75 beside 0.25 with threads = 1 and PyTorch "
            "2.15, wanted up to batch 48; run `motley profile -m MODEL -C CLUSTER --global-batch "
            "48`");
}

// n instructions of 1 ms took 4 n ms: a quarter of full speed, not the nominal three.
TEST_F(CpuCostsTest, ThePaceIsThatOfWholeSteps) {
  profile_all();
  measure_step(DeviceId(0), 4e-3 * instructions());
  measure_step(DeviceId(1), 2e-3 * instructions());
  const Costs found = costs();
  EXPECT_NEAR(found.devices.at("a:0").pace.at(Seconds(1)), 0.25, 1e-9);
  EXPECT_NEAR(found.devices.at("b:0").pace.at(Seconds(1)), 0.5, 1e-9);
  EXPECT_EQ(found.grounds.at("a:0").text, "measured");
  EXPECT_NEAR(found.full_speed.at("a:0")->total(kBatch).value, 1e-3 * instructions(), 1e-12);
}

// b:0, nominally a quarter, reaches half of the speed beside slowed others; alone, its quarter.
TEST_F(CpuCostsTest, AloneNoDeviceIsQuickerThanItsSpeed) {
  profile_all();
  measure_step(DeviceId(0), 2e-3 * instructions());
  measure_step(DeviceId(1), 2e-3 * instructions());
  const Costs found = costs();
  const auto total = [&](const char* device, bool is_alone) {
    const auto& times = found.devices.at(device);
    const auto& setting = is_alone ? times.alone : times.shared;
    return setting.table->total(kBatch).value / times.table_speed();
  };
  EXPECT_NEAR(total("b:0", false), 2e-3 * instructions(), 1e-12);
  EXPECT_NEAR(total("b:0", true) / total("a:0", true), 2, 1e-9);  // a:0 runs at its half
}

// Whole steps scatter by 0.2, instructions do not: all is common, 1.4826 median deviations.
TEST_F(CpuCostsTest, WhatStepsVaryByIsShared) {
  profile_all();
  measure_step(DeviceId(0), 2e-3 * instructions(), 0.2);
  measure_step(DeviceId(1), 2e-3 * instructions());
  const Costs found = costs();
  ASSERT_TRUE(found.jitter.contains("a:0"));
  EXPECT_NEAR(found.jitter.at("a:0").per_step, 1.4826 * 0.2, 1e-9);
  EXPECT_EQ(found.jitter.at("a:0").per_instruction, 0);
  EXPECT_FALSE(found.jitter.contains("b:0"));
}

class CpuCostsApart : public CpuCostsTest {
 protected:
  CpuCostsApart() : CpuCostsTest(false) {}
};

TEST_F(CpuCostsApart, AloneOnAHostTheSpeedIsThePace) {
  profile_all();
  const Costs found = costs();
  EXPECT_TRUE(found.devices.at("a:0").pace.is_constant());
  EXPECT_NEAR(found.devices.at("a:0").table_speed(), 0.75, 1e-12);
  EXPECT_NEAR(found.devices.at("b:0").table_speed(), 0.25, 1e-12);
  EXPECT_TRUE(found.jitter.empty());
}

// With models allowed, another model's operators give this one's times. Without any measurement,
// the error names what exists and what to do.
TEST_F(CpuCostsApart, OtherModelsMaySayWhatThisOneTakes) {
  options_.may_model = true;
  EXPECT_EQ(message(),
            "cpu with threads = 1 and PyTorch 2.15: 0 measured operators, wanted 10 or more to say "
            "what others take; run `motley profile` with some model first");
  model_.hash = "00000000000000bb";
  profile_all();
  model_.hash = "00000000000000aa";
  const Costs found = costs();
  EXPECT_EQ(found.grounds.at("a:0").origin, cost::Origin::kModelled);
  EXPECT_EQ(found.grounds.at("a:0").text, "modelled from what other models took there");
  // All operators of this model were measured under the other's name.
  EXPECT_NEAR(found.devices.at("a:0").shared.table->total(kBatch).value, 1e-3 * instructions(),
              1e-9);
}

// Profiled beside one other; asked about three on the host, each beside two.
TEST_F(CpuCostsTest, TheNearestNumberOfNeighboursStandsIn) {
  options_.may_model = true;
  profile_all();
  cluster::Device third = cluster_.devices[1];
  third.index = third.local_index = 1;
  third.name = "b:1";
  cluster_.devices.push_back(third);
  options_.devices.push_back(DeviceId(2));
  const Costs found = costs();
  for (const char* name : {"a:0", "b:0", "b:1"}) {
    EXPECT_EQ(found.grounds.at(name).origin, cost::Origin::kModelled) << name;
    EXPECT_NEAR(found.devices.at(name).shared.table->total(kBatch).value, 1e-3 * instructions(),
                1e-9);
  }
}

}  // namespace
}  // namespace motley::search
