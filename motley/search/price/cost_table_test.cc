#include "motley/search/price/cost_table.h"

#include <gtest/gtest.h>

#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"

namespace motley::search {
namespace {

constexpr const char* kText = R"(motley.costs/1
device "a:0" kind "cpu" from "measured"
  pace 0.4 of 0.01
  pace 0.3 of 0.09
  batch 1 alone 0.011 shared 0.0125
  batch 8 alone 0.05 shared 0.0625
device "b:0" kind "t4" from "figures of t4"
  pace 1.0 of 1.0
)";

TEST(CostTable, IsPrinted) {
  const CostTable table{
      {{"a:0",
        "cpu",
        "measured",
        {{Seconds(0.01), 0.4}, {Seconds(0.09), 0.3}},
        {{1, Seconds(0.011), Seconds(0.0125)}, {8, Seconds(0.05), Seconds(0.0625)}}},
       {"b:0", "t4", "figures of t4", {{Seconds(1), 1}}, {}}}};
  EXPECT_EQ(print_cost_table(table), kText);
}

/// Returns the profiled seconds of a device's compute for its samples, at full speed.
double invented_seconds(const InventedProfile& invented, std::int64_t samples, int ranks) {
  const auto program = synth::lower_first(invented.model().graph, {samples, ranks},
                                          {.bucket_bytes = Bytes(16 << 10)})
                           .value();
  double seconds = 0;
  for (const program::Instruction& each : program.instructions) {
    if (each.lane == Lane::kTransfer) continue;
    double bytes = 0;
    for (const BufferId output : each.outputs)
      bytes += static_cast<double>(program.buffer(output).bytes().value);
    const double scatter =
        0.85 + 0.3 * SplitMix64(hash_bytes(program::cost_key(program, each))).uniform();
    seconds += scatter * (20e-6 + 2e-9 * bytes);
  }
  return seconds;
}

// To a hundredth, as measurements are made non-decreasing over batches. A device alone on a machine
// computes at its speed of 0.2. Devices that share one are measured, too: whole steps are 10 %
// slower than their speed with much work, 30 % with little.
TEST(CostTable, SumsUpAllComputeAtTheDevicesPace) {
  const InventedProfile invented(synth::read_graph("mlp"), three_devices("far"), 4);
  const CostTable table = build_cost_table(invented.costs(), invented.cluster());
  ASSERT_EQ(table.devices.size(), 3u);
  EXPECT_EQ(table.devices[2].name, "c:0");
  EXPECT_EQ(table.devices[2].grounds, "measured");
  for (const auto& [device, speed] : {std::pair{0, 0.8}, {1, 0.4}, {2, 0.2}}) {
    const CostTable::Device& own = table.devices[static_cast<std::size_t>(device)];
    std::vector<std::int64_t> batches;
    for (const CostTable::Row& row : own.rows) batches.push_back(row.samples);
    EXPECT_EQ(batches, (std::vector<std::int64_t>{1, 2, 4}));
    const double slower = own.paces.size() == 1 ? 1.0 : 1.1;
    EXPECT_NEAR(own.rows[2].shared.value, slower * invented_seconds(invented, 4, 2) / speed,
                0.01 * own.rows[2].shared.value)
        << own.name;
  }
}

TEST(CostTable, LeavesOutDevicesOfWhichNothingIsKnown) {
  const InventedProfile invented(synth::read_graph("mlp"), three_devices("kinds"), 4);
  Costs costs = invented.costs();
  costs.devices.at("a:0").alone.table = nullptr;
  costs.devices.erase("c:0");
  const CostTable table = build_cost_table(costs, invented.cluster());
  ASSERT_EQ(table.devices.size(), 1u);
  EXPECT_EQ(table.devices[0].name, "b:0");
  EXPECT_EQ(table.devices[0].kind, "v100-16g");
  EXPECT_EQ(table.devices[0].grounds, "figures of v100-16g");
}

}  // namespace
}  // namespace motley::search
