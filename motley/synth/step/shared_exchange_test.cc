#include "motley/synth/step/shared_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/run_program.h"
#include "motley/testing/split_operator.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using ::testing::ElementsAre;

/// x [batch, 4] times w [4, 6] and times v [4, 3], and their gradients, split by samples.
graph::Graph two_products() {
  auto graph = graph::parse_graph(
      "motley.graph/1\nname \"two\"\nsize batch 1 64\ninput %0: f32[batch, 4] \"x\"\n"
      "param %1: f32[4, 6] \"w\"\nparam %2: f32[4, 3] \"v\"\n"
      "op %3: f32[batch, 6] = aten::mm(%0, %1) fwd \"\"\n"
      "op %4: f32[batch, 3] = aten::mm(%0, %2) fwd \"\"\n"
      "op %5: f32[] = aten::sum(%3, none) fwd \"\"\n"
      "op %6: f32[] = aten::sum(%4, none) fwd \"\"\n"
      "op %7: f32[] = aten::add.Tensor(%5, %6, 1) fwd \"\"\n"
      "op %8: f32[4, batch] = aten::t(%0) bwd \"\"\n"
      "op %9: f32[4, 6] = aten::mm(%8, %3) bwd \"\"\n"
      "op %10: f32[4, 3] = aten::mm(%8, %4) bwd \"\"\n"
      "output loss %7\noutput gradient %9 of \"w\"\noutput gradient %10 of \"v\"\n",
      "two");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

program::Program lower_kept(const graph::Graph& graph, const std::vector<double>& shares,
                            const std::vector<Form>& kept, Bytes bucket_bytes) {
  Sharding sharding;
  sharding.shares = shares;
  for (std::size_t i = 0; i < shares.size(); ++i) sharding.devices.push_back(std::to_string(i));
  sharding.batch = 8;
  spread_samples(graph, sharding);
  for (std::size_t p = 0; p < kept.size(); ++p) sharding.sources[1 + p] = kept[p];
  LowerOptions options;
  options.bucket_bytes = bucket_bytes;
  const auto program = lower_sharded(graph, sharding, options);
  EXPECT_TRUE(program) << program.error().message;
  return program ? *program : program::Program{};
}

/// The exchanges of a rank: "all_reduce 49", "all_gather [24, 12]".
std::vector<std::string> exchanges_of(const program::DeviceProgram& device) {
  std::vector<std::string> texts;
  for (const program::Instruction& each : device.instructions) {
    if (each.lane != Lane::kTransfer) continue;
    std::string& text = texts.emplace_back(each.op.substr(8) + " ");
    if (each.arguments.size() > 1) {
      text += program::print_argument(each.arguments[1]);
      continue;
    }
    text += std::to_string(device.buffer(std::get<BufferId>(each.arguments[0].value)).elements());
  }
  return texts;
}

const Form kFourRows{FormKind::kSharded, 0, 1, 4, 1};
/// The three columns of v; w as three pairs, or three columns of each half.
const Form kColumnsOfV{FormKind::kSharded, 1, 1, 3, 1};
const Form kPairsOfW{FormKind::kSharded, 1, 1, 3, 2};
const Form kHalvesOfW{FormKind::kSharded, 1, 2, 3, 1};

// Stop, loss, and gradients of 24 and 12 elements.
TEST(SharedExchange, WholeValuesAreSummedInOneBuffer) {
  const auto program = lower_kept(two_products(), {3, 1}, {}, Bytes(1 << 20));
  EXPECT_THAT(exchanges_of(program.devices[0]), ElementsAre("all_reduce 38"));
}

// 3 : 1 of 4 rows is 3 : 1, of 3 columns 2 : 1. w by rows: 18 and 6 elements; v: 8 and 4.
TEST(SharedExchange, PartsOfAllValuesTravelTogether) {
  const auto program = lower_kept(two_products(), {3, 1}, {kFourRows, kColumnsOfV}, Bytes(1 << 20));
  for (const program::DeviceProgram& device : program.devices)
    EXPECT_THAT(exchanges_of(device),
                ElementsAre("all_gather [26, 10]", "all_reduce 2", "reduce_scatter [26, 10]"));
}

TEST(SharedExchange, ABucketForEachValueIfTheyAreSmall) {
  const auto program = lower_kept(two_products(), {3, 1}, {kFourRows, kColumnsOfV}, Bytes(1));
  EXPECT_THAT(exchanges_of(program.devices[1]),
              ElementsAre("all_gather [18, 6]", "all_gather [8, 4]", "all_reduce 2",
                          "reduce_scatter [18, 6]", "reduce_scatter [8, 4]"));
}

// All cuts of parameters: rows, columns, pairs and within halves; a device without any part, and
// one without a part of a few columns.
TEST(SharedExchange, GivesEachDeviceItsPartsOfTheWhole) {
  const graph::Graph graph = two_products();
  for (const std::vector<double>& shares :
       {std::vector<double>{1, 1}, {3, 1}, {1, 0, 3}, {5, 1, 1, 1}})
    for (const Form& w : {graph::kWholeForm, kFourRows, kPairsOfW, kHalvesOfW})
      for (const Form& v : {graph::kWholeForm, kFourRows, kColumnsOfV})
        for (const std::int64_t bytes : {1, 1 << 20}) {
          SCOPED_TRACE(print_form(w) + " and " + print_form(v));
          testing::expect_runs_as(lower_kept(graph, shares, {w, v}, Bytes(bytes)), graph, 5);
        }
}

}  // namespace
}  // namespace motley::synth
