#include "motley/search/region/random_region.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "motley/cost/profile_cost.h"
#include "motley/program/memory.h"
#include "motley/program/parts.h"
#include "motley/synth/lower.h"
#include "motley/synth/ranks/exchange_methods.h"
#include "motley/testing/golden.h"
#include "motley/testing/toy_problem.h"

namespace motley::search {
namespace {

/// Four devices of two nodes and 12 samples of a golden model.
ToyProblem four_for_regions() {
  ToyProblem toy;
  toy.group = no_exchange;
  toy.add_device(linear_device(1));
  toy.add_device(linear_device(1));
  toy.add_device_on(NodeId(0), linear_device(1));
  toy.add_device_on(NodeId(1), linear_device(1));
  toy.finish(12);
  return toy;
}

TEST(RandomRegion, DrawsWhatItSays) {
  ToyProblem toy = four_for_regions();
  const graph::Graph& graph = synth::read_graph("mlp");
  std::set<std::size_t> sizes;
  std::set<std::int64_t> times;
  std::set<ExchangeMethod> methods;
  std::set<std::vector<DeviceId>> orders;
  std::set<double> shares;
  for (toy.problem.seed = 0; toy.problem.seed < 60; ++toy.problem.seed) {
    std::vector<std::string> why;
    const auto drawn = draw_region(toy.problem, graph, why);
    ASSERT_TRUE(drawn && *drawn);
    const plan::Region& region = (*drawn)->region;
    const std::set<DeviceId> distinct(region.devices.begin(), region.devices.end());
    EXPECT_EQ(distinct.size(), region.devices.size());
    sizes.insert(region.devices.size());
    times.insert((*drawn)->micro_batches);
    orders.insert(region.devices);
    shares.insert(region.shares.begin(), region.shares.end());
    for (const plan::ExchangeWay& way : region.exchanges) methods.insert(way.method);
    const plan::Plan plan =
        make_region_plan(toy.problem, region, (*drawn)->micro_batches, (*drawn)->turns);
    ASSERT_TRUE(plan::verify_plan(plan, toy.problem.model_hash, *toy.cluster));
    const auto program = synth::lower(graph, plan, *toy.cluster);
    ASSERT_TRUE(program) << program.error().message;
    // The method of an exchange changes no tensor.
    for (std::size_t rank = 0; rank < program->devices.size(); ++rank)
      EXPECT_EQ((*drawn)->peaks[rank],
                cost::with_framework(toy.cluster->device(region.devices[rank]),
                                     program::find_memory_peak(program->devices[rank]).total));
  }
  EXPECT_EQ(sizes, (std::set<std::size_t>{2, 3, 4}));
  EXPECT_EQ(times, (std::set<std::int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(shares, (std::set<double>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_GT(methods.size(), 2u);
  EXPECT_GT(orders.size(), 20u);
}

// Three nodes of one device each have one level, so no exchange is hierarchical.
TEST(RandomRegion, LevelsNeedNodesOfSeveralDevices) {
  ToyProblem flat;
  flat.group = no_exchange;
  for (int i = 0; i < 3; ++i) flat.add_device(linear_device(1));
  flat.finish(12);
  for (flat.problem.seed = 0; flat.problem.seed < 40; ++flat.problem.seed) {
    std::vector<std::string> why;
    const auto drawn = draw_region(flat.problem, synth::read_graph("mlp"), why);
    ASSERT_TRUE(drawn && *drawn);
    for (const plan::ExchangeWay& way : (*drawn)->region.exchanges)
      EXPECT_NE(way.method, ExchangeMethod::kHierarchical);
  }
}

TEST(RandomRegion, ABatchThatTheModelDoesNotTakeIsNotDrawnFor) {
  ToyProblem toy = four_for_regions();
  toy.problem.min_samples = 13;
  std::vector<std::string> why;
  const auto drawn = draw_region(toy.problem, synth::read_graph("mlp"), why);
  ASSERT_TRUE(drawn);
  EXPECT_FALSE(*drawn);
  ASSERT_EQ(why.size(), 1u);
  EXPECT_EQ(why[0],
            "operators are split at the global batch, which is 12; the model's batches are 13 to "
            "4096");
}

}  // namespace
}  // namespace motley::search
