#include "motley/cost/profile_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>

#include "motley/cost/measured/whole_step.h"
#include "motley/testing/pipeline_program.h"
#include "motley/testing/product_programs.h"

namespace motley::cost {
namespace {

const DeviceKey kCpu{"cpu", 1, "2.15"};

cluster::Cluster lab() {
  const auto cluster = cluster::parse_cluster(R"(
schema = "motley.cluster/1"
name = "lab"
[[node]]
name = "a"
host = "a"
device = [ { kind = "cpu", count = 2, speed = 0.5 }, { kind = "cuda", model = "NVIDIA A10" } ]
[[node]]
name = "b"
host = "b"
device = [ { kind = "cuda", threads = 2 } ]
[[link]]
all = true
bandwidth = "2.5Gbps"
latency = "0.1ms"
)",
                                              "lab.toml");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return *cluster;
}

TEST(RouteKey, NamesTheSlowestLink) {
  EXPECT_EQ(route_key(lab(), {DeviceId(0), DeviceId(1)}), "local");
  EXPECT_EQ(route_key(lab(), {DeviceId(0), DeviceId(3)}), "2.5Gbps+100us");
}

TEST(RouteKey, OfGpusSaysHowTheyReachEachOther) {
  cluster::Cluster node = lab();
  node.nodes[0].peers = "bus";
  EXPECT_EQ(route_key(node, {DeviceId(1), DeviceId(2)}), "local");  // with a CPU
  node.devices[1].kind = "cuda";
  node.devices[1].local_index = 1;
  EXPECT_EQ(route_key(node, {DeviceId(1), DeviceId(2)}), "local by bus");
  EXPECT_EQ(route_key(node, {DeviceId(1), DeviceId(3)}), "2.5Gbps+100us");
  node.nodes[0].peers = "";
  EXPECT_EQ(route_key(node, {DeviceId(1), DeviceId(2)}), "local");
}

TEST(BackendKey, IsGlooWithACpu) {
  EXPECT_EQ(backend_key(lab(), {DeviceId(0), DeviceId(1)}), "gloo of gpus");
  EXPECT_EQ(backend_key(lab(), {DeviceId(1), DeviceId(2)}), "gloo of gpus");
  EXPECT_EQ(backend_key(lab(), {DeviceId(2), DeviceId(3)}), "nccl");
  cluster::Cluster planned = lab();
  planned.devices[3].kind = "epyc-7742";
  EXPECT_EQ(backend_key(planned, {DeviceId(2), DeviceId(3)}), "gloo of gpus");
  planned.devices[3].kind = "a10";
  EXPECT_EQ(backend_key(planned, {DeviceId(2), DeviceId(3)}), "nccl");
}

TEST(BackendKey, IsGlooWhereNoGpuTakesPartOrOneHasTwoRanks) {
  cluster::Cluster cluster = lab();
  cluster.devices[2].kind = cluster.devices[3].kind = "cpu";
  EXPECT_EQ(backend_key(cluster, {DeviceId(0), DeviceId(1)}), "gloo");
  cluster.transport = "gloo";
  EXPECT_EQ(backend_key(cluster, {DeviceId(0), DeviceId(1)}), "gloo only");
  // Two nodes of one host: they share their first CUDA device.
  cluster = lab();
  for (cluster::Node& node : cluster.nodes) node.host = "h";
  EXPECT_EQ(backend_key(cluster, {DeviceId(2), DeviceId(3)}), "gloo of gpus");
}

TEST(DeviceKey, OfAGpuThatMayUseTf32IsAnother) {
  const cluster::Cluster cluster = lab();
  EXPECT_EQ(device_key(cluster.devices[2], "2.15.0+tf32"),
            (DeviceKey{"NVIDIA A10", 1, "2.15+tf32"}));
  EXPECT_EQ(device_key(cluster.devices[2], "2.15+tf32"), (DeviceKey{"NVIDIA A10", 1, "2.15+tf32"}));
  EXPECT_EQ(device_key(cluster.devices[0], "2.15+tf32"), device_key(cluster.devices[0], "2.15"));
}

TEST(DeviceKey, HoldsTheModelAndTheMinorVersion) {
  const cluster::Cluster cluster = lab();
  EXPECT_EQ(device_key(cluster.devices[0], "2.15.0+cpu"), (DeviceKey{"cpu", 1, "2.15"}));
  EXPECT_EQ(device_key(cluster.devices[2], "2.11.0"), (DeviceKey{"NVIDIA A10", 1, "2.11"}));
  EXPECT_EQ(device_key(cluster.devices[3], "2.15"), (DeviceKey{"cuda", 2, "2.15"}));
  // CPU devices of one host slow each other down.
  EXPECT_EQ(shared_key(cluster, DeviceId(0), "2.15"), (DeviceKey{"cpu beside 1", 1, "2.15"}));
  EXPECT_EQ(shared_key(cluster, DeviceId(2), "2.15"), device_key(cluster.devices[2], "2.15"));
}

/// One product without an exchange.
program::DeviceProgram alone_program(std::int64_t samples) {
  program::DeviceProgram program = product_program(samples, 1);
  program.instructions.pop_back();
  return program;
}

class ProfileCostTest : public ::testing::Test {
 protected:
  // The products take 4 s and 1 s at 4 samples; a group has both, a single device one. The device
  // runs at half speed. All-reduce of two ranks: 1 s + 1 s per byte.
  ProfileCostTest() {
    ProfileStore store = memory_store();
    EXPECT_TRUE(store.put(product_entries(kCpu, 4, {4.0, 1.0})));
    for (const std::int64_t bytes : {1, 2}) {
      EXPECT_TRUE(store.put(std::vector<CollectiveEntry>{
          {"motley::all_reduce", "gloo of gpus", "local", 2, Bytes(bytes),
           Seconds(1.0 + static_cast<double>(bytes)), 0, 1}}));
    }
    const auto build = [&](const program::DeviceProgram& reference) {
      return std::make_shared<const InstructionTimes>(
          *InstructionTimes::build({reference}, *MeasuredTimes::load(store, kCpu), kCpu));
    };
    cost_ = std::make_unique<ProfileCost>(
        lab(),
        std::map<std::string, ProfileCost::DeviceTimes>{
            {"a:0", {{build(alone_program(4))}, {build(product_program(4, 2))}, Pace(0.5)}}},
        *CollectiveTimes::build(store));
  }

  std::unique_ptr<ProfileCost> cost_;
};

TEST_F(ProfileCostTest, PricesTheProgramThatFits) {
  // Half speed doubles the times; a single measured batch scales proportionally.
  EXPECT_EQ(cost_->times(product_program(4, 2)).value().seconds,
            (std::vector{Seconds(8.0), Seconds(2.0), Seconds(0.0)}));
  EXPECT_EQ(cost_->times(alone_program(8)).value().seconds, std::vector{Seconds(16.0)});
}

TEST_F(ProfileCostTest, RefusesOtherProgramsAndDevices) {
  EXPECT_EQ(cost_->times(product_program(4, 5)).error().message,
            "the program of 'a:0' has 6 instructions, the profiled model another number; was it "
            "made from another model?");
  EXPECT_EQ(cost_->times(product_program(4, 5)).error().kind, ErrorKind::kStale);
  program::DeviceProgram other = product_program(4, 2);
  other.device = "b:0";
  EXPECT_EQ(cost_->times(other).error().message,
            "no times for device 'b:0'; run `motley profile` with this cluster");
}

TEST_F(ProfileCostTest, PricesCollectivesByTheGroupsRoute) {
  EXPECT_NEAR(cost_->collective_time("motley::all_reduce", Bytes(9), {"a:0", "a:1"})->value, 10.0,
              1e-9);
  EXPECT_EQ(cost_->collective_time("motley::all_reduce", Bytes(9), {"a:0", "a:9"}).error().code,
            "cluster.unknown-device");
  EXPECT_EQ(cost_->collective_time("motley::all_reduce", Bytes(9), {"a:0", "b:0"}).error().message,
            "no measurement of motley::all_reduce over gloo of gpus by route 2.5Gbps+100us among 2 "
            "ranks (measured at two sizes or more: none); run `motley profile` with this cluster");
}

/// Returns the transfer of 10^6 bytes per rank between a:0 and b:0, measured at 0.5 s + `moving`.
Transfer measured_transfer(const std::string& op, double moving) {
  ProfileStore store = memory_store();
  for (const std::int64_t bytes : {0, 1000000})
    EXPECT_TRUE(store.put(std::vector<CollectiveEntry>{
        {op, "gloo of gpus", "2.5Gbps+100us", 2, Bytes(bytes),
         Seconds(0.5 + moving * static_cast<double>(bytes) / 1e6), 0, 1}}));
  const ProfileCost cost(lab(), {}, *CollectiveTimes::build(store));
  const auto transfer = cost.transfer(op, {Bytes(1000000)}, {"a:0", "b:0"});
  EXPECT_TRUE(transfer) << transfer.error().message;
  EXPECT_NEAR(isolated_time(*transfer, cost.link_capacities()).value, 0.5 + moving, 1e-12);
  return *transfer;
}

TEST(MeasuredTransfer, IsAFlowOverTheRing) {
  // 10^6 bytes over four ports at up to 10^6 B/s, which the ports of 312.5 MB/s carry.
  const Transfer transfer = measured_transfer("motley::all_reduce", 1);
  ASSERT_EQ(transfer.phases.size(), 1U);
  EXPECT_NEAR(transfer.phases[0].delay.value, 0.5, 1e-12);
  ASSERT_EQ(transfer.phases[0].flows.size(), 1U);
  const Flow& flow = transfer.phases[0].flows[0];
  EXPECT_DOUBLE_EQ(flow.bytes, 1e6);
  EXPECT_NEAR(flow.most_rate, 1e6, 1e-3);
  EXPECT_EQ(flow.uses, (std::vector<LinkUse>{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  // Each rank's half goes to the other.
  EXPECT_DOUBLE_EQ(measured_transfer("motley::all_gather", 1).phases[0].flows[0].bytes, 5e5);
  // a to b: out of a and into b.
  EXPECT_EQ(measured_transfer("motley::send", 1).phases[0].flows[0].uses,
            (std::vector<LinkUse>{{0, 1}, {3, 1}}));
}

TEST(MeasuredTransfer, ASendTakesAnAllReduceAmongTwoElseTheLinks) {
  const auto seconds = [](const char* measured, const std::string& from) {
    auto store = ProfileStore::open(":memory:").value();
    for (const std::int64_t bytes : {0, 1000000})
      EXPECT_TRUE(store.put(
          std::vector<CollectiveEntry>{{measured, "gloo of gpus", "2.5Gbps+100us", 2, Bytes(bytes),
                                        Seconds(0.5 + static_cast<double>(bytes) / 1e6), 0, 1}}));
    const ProfileCost cost(lab(), {}, *CollectiveTimes::build(store));
    const auto transfer = cost.transfer("motley::send", {Bytes(1000000)}, {from, "b:0"});
    EXPECT_TRUE(transfer) << transfer.error().message;
    const double alone = isolated_time(*transfer, cost.link_capacities()).value;
    EXPECT_NEAR(cost.collective_time("motley::send", Bytes(1000000), {from, "b:0"})->value, alone,
                1e-9);
    return alone;
  };
  EXPECT_NEAR(seconds("motley::all_reduce", "a:0"), 1.5, 1e-9);
  // Not measured: 10^6 bytes at 312.5 MB/s are 3.2 ms, after the link's 100 us and Gloo's 50 us.
  EXPECT_NEAR(seconds("motley::all_gather", "a:0"), 3.2e-3 + 150e-6, 1e-9);
}

// Measured with even parts of 10^6 bytes in all, which takes 1 s: of two devices each sends half.
// All of one's bytes go one way, twice as many; by the bytes of priced_bytes as if both had all.
TEST(MeasuredTransfer, UnevenPartsTakeMoreAsOverTheLinks) {
  ProfileStore store = memory_store();
  for (const std::int64_t bytes : {0, 1000000})
    EXPECT_TRUE(store.put(std::vector<CollectiveEntry>{
        {"motley::all_gather", "gloo of gpus", "2.5Gbps+100us", 2, Bytes(bytes),
         Seconds(0.5 + static_cast<double>(bytes) / 1e6), 0, 1}}));
  const ProfileCost cost(lab(), {}, *CollectiveTimes::build(store));
  const auto seconds = [&](std::int64_t a, std::int64_t b) {
    const auto transfer = cost.transfer(
        "motley::all_gather", {Bytes(2 * std::max(a, b)), {Bytes(a), Bytes(b)}}, {"a:0", "b:0"});
    EXPECT_TRUE(transfer) << transfer.error().message;
    return isolated_time(*transfer, cost.link_capacities()).value;
  };
  EXPECT_NEAR(seconds(1000000, 0), 2.5, 1e-9);
  EXPECT_NEAR(seconds(400000, 600000), 0.5 + 1.2, 1e-9);
}

TEST(MeasuredTransfer, IsNotSlowedByTheStatedCapacity) {
  // 10^6 bytes in 1 ms are 10^9 B/s over ports of 312.5 MB/s, which it fills.
  for (const LinkUse& use : measured_transfer("motley::all_reduce", 1e-3).phases[0].flows[0].uses)
    EXPECT_NEAR(use.weight, 0.3125, 1e-9);
}

TEST_F(ProfileCostTest, RoutesWithoutLinksTakeFixedTimes) {
  const auto transfer = cost_->transfer("motley::all_reduce", {Bytes(9)}, {"a:0", "a:1"});
  ASSERT_TRUE(transfer);
  ASSERT_EQ(transfer->phases.size(), 1U);
  EXPECT_NEAR(transfer->phases[0].delay.value, 10.0, 1e-9);
  EXPECT_TRUE(transfer->phases[0].flows.empty());
}

// The value for the nearest number of ranks counts; route and device must match.
TEST(ProfileCostInterference, IsThatOfTheGroupsRouteAndSize) {
  const DeviceKey key{"cpu", 1, "2.15"};
  const ProfileCost cost(lab(),
                         {{"a:0",
                           {{},
                            {},
                            Pace(),
                            false,
                            {{key, "gloo of gpus", "2.5Gbps+100us", 4, 0.1, 1},
                             {key, "gloo of gpus", "local", 2, 0.5, 1},
                             {key, "gloo of gpus", "local", 4, 2.0, 1}}}},
                          {"a:1", {}}},
                         CollectiveTimes());
  EXPECT_EQ(cost.interference("a:0", {"a:0", "a:1"}), 0.5);
  EXPECT_EQ(cost.interference("a:0", {"a:0", "b:0"}), 0.1);
  EXPECT_EQ(cost.interference("a:1", {"a:0", "a:1"}), 0);
  EXPECT_EQ(cost.interference("b:0", {"a:0", "b:0"}), 0);
  EXPECT_EQ(cost.interference("a:0", {"a:0", "a:9"}), 0);
}

/// Three planned GPUs on hosts a, b, c at one switch of 1e9 bytes/s each way; `cards`: lines of the
/// hosts.
ProfileCost planned_cost(const std::array<const char*, 3>& cards = {"", "", ""}) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"planned\"\n";
  for (std::size_t i = 0; i < cards.size(); ++i)
    text += std::string("[[node]]\nname = \"") + "abc"[i] + "\"\n" + cards[i] +
            "device = [ { kind = \"v100-16g\" } ]\n";
  text += "[[link]]\nall = true\nbandwidth = \"8Gbps\"\nlatency = \"1us\"\n";
  const auto cluster = cluster::parse_cluster(text, "planned.toml");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return {*cluster, {}, *CollectiveTimes::build(memory_store())};
}

TEST(PlannedGroups, ExchangePartsOverTheirLinks) {
  // n = 3, 1e9 bytes.
  const ProfileCost cost = planned_cost();
  const auto seconds = [&](const char* op) {
    const auto time = cost.collective_time(op, Bytes(1'000'000'000), {"a:0", "b:0", "c:0"});
    EXPECT_TRUE(time) << time.error().message;
    return time ? time->value : -1;
  };
  // (n-1)/n B/b; an all-to-all of n B in all: (n-1)/n^2 n B/b.
  EXPECT_NEAR(seconds("motley::all_gather"), 2.0 / 3, 1e-3);
  EXPECT_NEAR(seconds("motley::reduce_scatter"), 2.0 / 3, 1e-3);
  EXPECT_NEAR(seconds("motley::all_to_all"), 2.0 / 3, 1e-3);
  EXPECT_NEAR(seconds("motley::all_reduce"), 4.0 / 3, 1e-3);
  EXPECT_NEAR(seconds("motley::all_gather.grouped"), 2.0 / 3, 1e-3);
  EXPECT_NEAR(seconds("motley::all_gather.padded"), 2.0 / 3, 1e-3);
  // Each of several algorithms has a line: an all-reduce the ring's and the trees'.
  for (const char* op : {"motley::all_gather", "motley::all_to_all.grouped", "motley::all_reduce"})
    for (const std::int64_t bytes : {1, 1000, 1'000'000'000}) {
      const auto curves = cost.collective_curves(op, {"a:0", "b:0", "c:0"});
      ASSERT_TRUE(curves) << curves.error().message;
      double least = 1e9;
      for (const CollectiveCurve& curve : *curves)
        least = std::min(least, curve.at(static_cast<double>(bytes)).value);
      const auto time = cost.collective_time(op, Bytes(bytes), {"a:0", "b:0", "c:0"});
      EXPECT_NEAR(time->value, least, 1e-9 * least) << op << " " << bytes;
    }
  EXPECT_EQ(cost.collective_time("motley::all_gather.hierarchical", Bytes(8), {"a:0", "b:0"})
                .error()
                .message,
            "motley::all_gather.hierarchical among 2 devices of 2 hosts: wanted two hosts or more, "
            "one of them with several");
}

// One member has all of 1e9 bytes: its card carries them once for each other, theirs once.
TEST(PlannedGroups, UnevenPartsTakeWhatEachCardCarries) {
  const auto seconds = [](const ProfileCost& cost, std::int64_t a, std::int64_t c) {
    const auto transfer = cost.transfer("motley::reduce_scatter",
                                        {Bytes(3 * std::max(a, c)), {Bytes(a), Bytes(0), Bytes(c)}},
                                        {"a:0", "b:0", "c:0"});
    EXPECT_TRUE(transfer) << transfer.error().message;
    return isolated_time(*transfer, cost.link_capacities()).value;
  };
  const ProfileCost even = planned_cost();
  EXPECT_NEAR(seconds(even, 1'000'000'000, 0), 2, 1e-3);
  // c's card of 0.25e9 bytes/s: 4 s for its own gradients, 8 s for those of both others.
  const ProfileCost slow = planned_cost({"", "", "bandwidth = \"2Gbps\"\n"});
  EXPECT_NEAR(seconds(slow, 1'000'000'000, 0), 4, 1e-3);
  EXPECT_NEAR(seconds(slow, 0, 1'000'000'000), 8, 1e-3);
  EXPECT_NEAR(seconds(slow, 750'000'000, 250'000'000), 3, 1e-3);
}

TEST(UsualPace, IsTheMedianOverModels) {
  ProfileStore store = memory_store();
  const DeviceKey key{"cpu at 0.5 beside 0.2", 1, "2.15"};
  EXPECT_EQ(*usual_pace(store, key), std::nullopt);
  // 4 of 10 ms, 9 of 20 ms and 5 of 10 ms: 0.4, 0.45, 0.5. Ignores a step without its other half.
  for (const auto& [subject, compute, step] :
       {std::tuple{"a", 4e-3, 10e-3}, {"b", 9e-3, 20e-3}, {"c", 5e-3, 10e-3}}) {
    OpEntry whole = step_entry(key, subject, 8), parts = compute_entry(key, subject, 8);
    whole.median = Seconds(step);
    parts.median = Seconds(compute);
    ASSERT_TRUE(store.put({whole, parts}));
  }
  OpEntry alone = step_entry(key, "d", 8);
  alone.median = Seconds(1);
  ASSERT_TRUE(store.put({alone}));
  EXPECT_DOUBLE_EQ(**usual_pace(store, key), 0.45);
}

TEST(Pause, IsThatOfTheModelElseOfAll) {
  ProfileStore store = memory_store();
  const DeviceKey key{"cpu at 0.5 beside 0.2", 1, "2.15"};
  EXPECT_EQ(*find_pause(store, key, "a"), Seconds(0));
  for (const auto& [subject, samples, pause] : {std::tuple{"a", 4, 1e-4},
                                                {"a", 8, 2e-4},
                                                {"a", 16, 4e-4},
                                                {"b", 4, 9e-4},
                                                {"b", 8, 8e-4}}) {
    OpEntry entry = pause_entry(key, subject, samples);
    EXPECT_TRUE(is_whole_step(entry));
    entry.median = Seconds(pause);
    ASSERT_TRUE(store.put({entry}));
  }
  EXPECT_EQ(*find_pause(store, key, "a"), Seconds(2e-4));
  EXPECT_EQ(*find_pause(store, key, "c"), Seconds(4e-4));
}

/// A second per instruction.
class Uniform : public TimeSource {
 public:
  std::vector<std::optional<Answer>> times(const program::DeviceProgram& program) const override {
    return std::vector<std::optional<Answer>>(program.instructions.size(), Answer{Seconds(1), {}});
  }
};

// An emulated device at half speed, with a tenth of a second per pause.
TEST(Pause, IsInWhatComesAfterAMessage) {
  const auto program = testing::PipelineProgram({{1, 1}, {1, 1}}, 4, 3).one_forward_one_backward();
  std::map<std::string, ProfileCost::DeviceTimes> devices;
  for (const program::DeviceProgram& each : program.devices) {
    ProfileCost::DeviceTimes times;
    times.alone.source = times.shared.source = std::make_shared<Uniform>();
    times.pace = Pace(0.5);
    times.pause = Seconds(0.1);
    devices[each.device] = times;
  }
  const ProfileCost cost(lab(), devices, *CollectiveTimes::build(memory_store()));
  for (const program::DeviceProgram& each : program.devices) {
    const auto times = cost.times(each);
    ASSERT_TRUE(times) << times.error().message;
    int pauses = 0;
    for (std::size_t i = 0; i < each.instructions.size(); ++i) {
      if (each.instructions[i].lane != Lane::kCompute) continue;
      pauses += times->seconds[i] == Seconds(2.1) ? 1 : 0;
      EXPECT_TRUE(times->seconds[i] == Seconds(2) || times->seconds[i] == Seconds(2.1));
    }
    EXPECT_EQ(pauses, 3) << "a message for each micro-batch, each way";
  }
}

}  // namespace
}  // namespace motley::cost
