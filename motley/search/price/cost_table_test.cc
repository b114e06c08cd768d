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

TEST(CostTable, ReadsBackAsPrinted) {
  const auto table = parse_cost_table(kText, "costs");
  ASSERT_TRUE(table) << table.error().message;
  ASSERT_EQ(table->devices.size(), 2u);
  EXPECT_EQ(table->devices[0].rows[1], (CostTable::Row{8, Seconds(0.05), Seconds(0.0625)}));
  EXPECT_EQ(table->devices[0].paces[1], (cost::Pace::Sample{Seconds(0.09), 0.3}));
  EXPECT_EQ(table->devices[1].grounds, "figures of t4");
  EXPECT_EQ(print_cost_table(*table), kText);
}

TEST(CostTable, NamesPlaceAndWhatIsWanted) {
  const auto error = [](const std::string& text) {
    return parse_cost_table(text, "costs").error().message;
  };
  EXPECT_EQ(error("motley.costs/2\n"), "costs:1: found 'motley.costs/2', wanted 'motley.costs/1'");
  EXPECT_EQ(error("motley.costs/1\n  batch 1 alone 2 shared 3\n"),
            "costs:2: found 'batch 1 alone 2 shared 3', wanted 'device'");
  EXPECT_EQ(error("motley.costs/1\ndevice \"a\" kind \"cpu\" from \"measured\"\n  pace\n"),
            "costs:3: found the end of the line, wanted a number");
}

TEST(CostTable, NamesWhatIsWrongWithinALine) {
  const auto error = [](const std::string& lines) {
    const auto table = parse_cost_table(
        "motley.costs/1\ndevice \"a\" kind \"cpu\" from \"measured\"\n" + lines, "costs");
    EXPECT_FALSE(table) << lines;
    return table ? "" : table.error().message;
  };
  EXPECT_EQ(error("  speed 3\n"), "costs:3: found 'speed 3', wanted 'device', 'pace' or 'batch'");
  EXPECT_EQ(error("  pace 0.5 for 1.0\n"), "costs:3: found 'for 1.0', wanted 'of'");
  EXPECT_EQ(error("  pace 0.5 of 1.0 s\n"), "costs:3: found 's', wanted the end of the line");
  EXPECT_EQ(error("  batch 1.5 alone 1 shared 2\n"),
            "costs:3: found '1.5 alone 1 shared 2', wanted an integer");
  EXPECT_EQ(error("  batch 1 alone 2\n"), "costs:3: found the end of the line, wanted 'shared'");
  EXPECT_EQ(error("\ndevice b kind \"cpu\" from \"x\"\n"),
            "costs:4: found 'b kind \"cpu\" from \"x\"', wanted a text in quotes");
}

/// Seconds of all that a device computes for its samples, at full speed, as the profile says it.
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

// To a hundredth, as measurements that scatter are made nondecreasing over batches.
// A device of its own machine computes as long as its speed of 0.2 says. Those that share one are
// measured, too: whole steps are 10 % slower than their speed where they have much to do, 30 %
// where they have little.
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
  EXPECT_EQ(parse_cost_table(print_cost_table(table), "costs").value(), table);
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
