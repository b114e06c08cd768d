#include "motley/search/price/cost_table.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace motley::search
