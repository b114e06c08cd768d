// Measured groups whose exchanges share links.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "motley/cost/profile_cost.h"
#include "motley/program/program_text.h"
#include "motley/simulate/program_tasks.h"
#include "motley/simulate/resimulation.h"

namespace motley::simulate {
namespace {

constexpr Nanoseconds kAlone = 1'100'000;  // 0.1 ms + 1 ns for each of 10^6 bytes

/// Nodes a, b, c and d with one CPU each, joined by `links`.
cluster::Cluster four_nodes(const std::string& links) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"four\"\n";
  for (const char* node : {"a", "b", "c", "d"})
    text += fmt::format("[[node]]\nname = \"{}\"\ndevice = [ {{ kind = \"cpu\" }} ]\n", node);
  auto cluster = cluster::parse_cluster(text + links, "four");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return std::move(*cluster);
}

std::string switched(const std::string& capacity) {
  return "[[link]]\nall = true\nbandwidth = \"8Gbps\"\nlatency = \"10us\"\n" +
         (capacity.empty() ? "" : "capacity = \"" + capacity + "\"\n");
}

/// A device that computes, then sums 10^6 bytes in a group.
std::string device(const std::string& name, int group) {
  return fmt::format(
      "device \"{}:0\" samples 1 first 0\nbuffer %0: state u8[1000000] \"s\"\n"
      "compute ^0: aten::f()\ntransfer ^1: motley::all_reduce(%0) group {} wait ^0\n",
      name, group);
}

program::Program two_pairs() {
  auto program = program::parse_program(
      "motley.program/1\nmodel \"\" plan \"\" global_batch 4\ngroup 0: 0 1\ngroup 1: 2 3\n" +
          device("a", 0) + device("b", 0) + device("c", 1) + device("d", 1),
      "p");
  EXPECT_TRUE(program) << program.error().message;
  return std::move(*program);
}

/// Measured: 0.1 ms + 1 ns per byte for every group of two; the compute of c and d takes `late`.
cost::ProfileCost measured(const cluster::Cluster& cluster, Seconds late) {
  const cost::DeviceKey key{"cpu", 1, "2.15"};
  auto store = cost::ProfileStore::open(":memory:").value();
  for (const int ranks : {2, 4})
    for (const std::int64_t bytes : {0, 1'000'000})
      EXPECT_TRUE(store.put(std::vector<cost::CollectiveEntry>{
          {"motley::all_reduce", "gloo", cost::route_key(cluster, {DeviceId(0), DeviceId(1)}),
           ranks, Bytes(bytes), Seconds(1e-4 + 1e-9 * static_cast<double>(bytes)), 0, 1}}));
  const auto table = [&](Seconds seconds) {
    const program::DeviceProgram program = two_pairs().devices[0];
    const cost::OpEntry entry{.device = key,
                              .key = program::cost_key(program, program.instructions[0]),
                              .median = seconds,
                              .samples = 1};
    return std::make_shared<const cost::InstructionTimes>(
        cost::InstructionTimes::build({program}, cost::MeasuredTimes({entry}), key).value());
  };
  const auto early = table(Seconds(0)), later = table(late);
  return {cluster,
          {{"a:0", {{early}, {early}}},
           {"b:0", {{early}, {early}}},
           {"c:0", {{later}, {later}}},
           {"d:0", {{later}, {later}}}},
          cost::CollectiveTimes::build(store).value()};
}

/// Durations of both pairs' sums.
struct Sums {
  Nanoseconds first, second;
  bool operator==(const Sums&) const = default;
};
Sums run(const std::string& links, Seconds late = Seconds(0)) {
  const auto tasks = lay_out_program(two_pairs(), measured(four_nodes(links), late));
  EXPECT_TRUE(tasks) << tasks.error().message;
  const auto times = find_times(tasks->graph);
  EXPECT_TRUE(times);
  const auto took = [&](std::size_t rank) {
    const std::size_t task = tasks->tasks[rank][1].index();
    return times->ends[task] - times->begins[task];
  };
  return {took(0), took(2)};
}

TEST(Contention, PairsBehindAFullSwitchTakeTwiceAsLong) {
  // A pair moves 10^6 bytes each way at 10^9 B/s: both ways are the switch's 16 Gbit/s.
  EXPECT_EQ(run(switched("16Gbps")), (Sums{kAlone + 1'000'000, kAlone + 1'000'000}));
  EXPECT_EQ(run(switched("32Gbps")), (Sums{kAlone, kAlone}));
  // 24 Gbit/s is 3/4 of the demand.
  EXPECT_EQ(run(switched("24Gbps")), (Sums{1'433'334, 1'433'334}));
}

TEST(Contention, AloneAPairTakesWhatWasMeasured) {
  for (const char* capacity : {"1Gbps", "16Gbps", "32Gbps"})
    EXPECT_EQ(run(switched(capacity), Seconds(0.01)), (Sums{kAlone, kAlone})) << capacity;
}

TEST(Contention, ASlowerLinkThanMeasuredIsSharedAllTheSame) {
  EXPECT_EQ(run(switched("1Gbps")), (Sums{kAlone + 1'000'000, kAlone + 1'000'000}));
}

TEST(Contention, OneThatComesLaterSharesWhatIsLeft) {
  // The flows begin at 0.1 and 0.6 ms. The first then has half its bytes left, 1 ms at half the
  // rate: it ends at 1.6. The second then has half left: 0.5 ms more, 2.1.
  EXPECT_EQ(run(switched("16Gbps"), Seconds(5e-4)), (Sums{1'600'000, 1'600'000}));
}

TEST(Contention, LinksApartDoNotSlowEachOther) {
  const auto pair = [](const char* a, const char* b) {
    return fmt::format(
        "[[link]]\nbetween = [\"{}\", \"{}\"]\nbandwidth = \"8Gbps\"\nlatency = \"10us\"\n", a, b);
  };
  EXPECT_EQ(run(pair("a", "b") + pair("c", "d")), (Sums{kAlone, kAlone}));
}

TEST(Contention, OnlyWhatMayShareALinkHasFlows) {
  const auto transfers = [](const program::Program& program, const std::string& capacity) {
    const auto cluster = four_nodes(switched(capacity));
    return lay_out_program(program, measured(cluster, Seconds(0)))->graph.transfers.size();
  };
  EXPECT_EQ(transfers(two_pairs(), "16Gbps"), 2U);
  EXPECT_EQ(transfers(two_pairs(), ""), 0U);  // every pair has its own ports
  const auto one_group = program::parse_program(
      "motley.program/1\nmodel \"\" plan \"\" global_batch 4\ngroup 0: 0 1 2 3\n" + device("a", 0) +
          device("b", 0) + device("c", 0) + device("d", 0),
      "p");
  ASSERT_TRUE(one_group);
  EXPECT_EQ(transfers(*one_group, "16Gbps"), 0U);
}

TEST(Contention, AnEditIsWorkedOutAsInAFullRun) {
  const auto tasks =
      lay_out_program(two_pairs(), measured(four_nodes(switched("16Gbps")), Seconds(3e-4)));
  ASSERT_TRUE(tasks);
  auto simulation = Resimulation::start(tasks->graph);
  ASSERT_TRUE(simulation);
  for (const Nanoseconds late : {100'000, 700'000, 2'000'000, 0}) {
    simulation->set_duration(tasks->tasks[1][0], late);
    ASSERT_TRUE(simulation->update());
    const auto times = find_times(simulation->graph());
    ASSERT_TRUE(times);
    EXPECT_EQ(simulation->end(), times->end);
    for (std::size_t task = 0; task < times->ends.size(); ++task)
      EXPECT_EQ(simulation->end(TaskId(static_cast<std::int64_t>(task))), times->ends[task]);
  }
}

}  // namespace
}  // namespace motley::simulate
