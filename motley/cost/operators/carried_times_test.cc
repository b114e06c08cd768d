#include "motley/cost/operators/carried_times.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "motley/graph/graph_text.h"
#include "motley/program/program_text.h"

namespace motley::cost {
namespace {

cluster::PlanningKind kind(std::string_view name) { return *cluster::find_kind(name); }

std::string_view nearest_name(std::string_view wanted, std::vector<cluster::PlanningKind> from) {
  const cluster::PlanningKind* nearest = nearest_kind(kind(wanted), from);
  return nearest == nullptr ? "none" : nearest->name;
}

TEST(CarriedSeconds, SplitsLaunchSharesTheRest) {
  const KindRatio figures{Seconds(20e-6), Seconds(10e-6)};
  // 10 + 1/2 40 10/20 + 1/2 10
  EXPECT_DOUBLE_EQ(carried_seconds(Seconds(50e-6), Seconds(10e-6), figures, 0.5).value, 25e-6);
  // All of it launch: 4 + 1/2 10.
  EXPECT_DOUBLE_EQ(carried_seconds(Seconds(4e-6), Seconds(10e-6), figures, 0.5).value, 9e-6);
}

TEST(CarriedSeconds, KeepsWhatTheFiguresDoNotExplain) {
  EXPECT_EQ(carried_seconds(Seconds(3e-6), Seconds(1e-6), {Seconds(0), Seconds(0)}), Seconds(3e-6));
}

RC_GTEST_PROP(CarriedSeconds, ThereAndBackIsWhereItWas, ()) {
  const auto us = [] { return Seconds(1e-6 * *rc::gen::inRange(1, 1000)); };
  const Seconds measured = us(), launch = us(), here = us(), there = us();
  const Seconds carried = carried_seconds(measured, launch, {here, there}, 1);
  const Seconds back = carried_seconds(carried, launch, {there, here}, 1);
  RC_ASSERT(std::abs(back.value / measured.value - 1) < 1e-9);
}

TEST(NearestKind, IsOfTheLikeRateInF16) {
  const std::vector<cluster::PlanningKind> six = {kind("a100-40g"),  kind("gh200-96g"),
                                                  kind("rtx2080ti"), kind("rtx3090"),
                                                  kind("titanrtx"),  kind("v100-16g")};
  EXPECT_EQ(nearest_name("h100-80g", six), "gh200-96g");
  EXPECT_EQ(nearest_name("rtx3080", six), "rtx2080ti");  // 59.5 against 53.8 and 71
  EXPECT_EQ(nearest_name("t4", six), "rtx3090");         // 65 against 71 and 53.8
  EXPECT_EQ(nearest_name("a100-80g", six), "a100-40g");
}

TEST(NearestKind, IsAGpuOfTheSameVendor) {
  EXPECT_EQ(nearest_name("mi300x", {kind("h100-80g")}), "none");
  EXPECT_EQ(nearest_name("mi300x", {kind("h100-80g"), kind("mi100")}), "mi100");
  EXPECT_EQ(nearest_name("a10", {kind("epyc-7742")}), "none");
  EXPECT_EQ(nearest_name("epyc-7763", {kind("epyc-7742"), kind("a10")}), "none");
  EXPECT_EQ(nearest_name("a10", {}), "none");
}

class CarriedTimesTest : public ::testing::Test {
 protected:
  graph::Graph graph_ = *graph::parse_graph(
      "motley.graph/1\nname \"one\"\nsize batch 1 4096\n"
      "input %0: f32[batch, 1000] \"x\"\n"
      "param %1: f32[1000, 1000] \"w\"\n"
      "op %2: f32[1000, 1000] = aten::t(%1) fwd \"\"\n"
      "op %3: f32[batch, 1000] = aten::mm(%0, %2) fwd \"\"\n"
      "op %4: f32[batch, 1000] = aten::relu(%3) fwd \"\"\n"
      "op %5: f32[] = aten::sum(%4, none) fwd \"\"\n"
      "output loss %5\n",
      "g");
  program::DeviceProgram program_ =
      program::parse_program(
          "motley.program/1\nmodel \"\" plan \"\" global_batch 1000\ngroup 0: 0\n"
          "device \"a:0\" samples 1000 first 0\n"
          "buffer %0: input f32[1000, 1000] \"x\"\n"
          "buffer %1: parameter f32[1000, 1000] \"w\"\n"
          "buffer %2: temporary f32[1000, 1000] view %1\n"
          "buffer %3: temporary f32[1000, 1000]\n"
          "buffer %4: temporary f32[1000, 1000]\n"
          "compute ^0: %0 = motley::load(0)\n"
          "compute ^1: %2 = aten::t(%1) origin 0\n"
          "compute ^2: %3 = aten::mm(%0, %2) origin 1\n"
          "compute ^3: %4 = aten::relu(%3) origin 2 free %3\n",
          "p")
          ->devices[0];

  /// Returns entries for instructions 1 to 3, with their work.
  std::vector<OpEntry> entries(const std::vector<double>& seconds) const {
    const std::vector<OperatorWork> works = instruction_work(program_, graph_);
    std::vector<OpEntry> entries;
    for (std::size_t i = 0; i < seconds.size(); ++i)
      entries.push_back({.device = {"NVIDIA A10", 1, "2.15"},
                         .key = program::cost_key(program_, program_.instructions[i + 1]),
                         .median = Seconds(seconds[i]),
                         .spread = 0.125,
                         .samples = 3,
                         .scratch = Bytes(7),
                         .work = works[i + 1]});
    return entries;
  }
};

TEST_F(CarriedTimesTest, ScalesByTheFiguresBesideTheShortestKernel) {
  cluster::PlanningKind here;  // 10^12 operations and 10^11 bytes per second
  here.name = "here";
  here.memory_bandwidth = BytesPerSecond(1e11);
  here.peak.f32 = cluster::FlopsPerSecond(1e12);
  cluster::PlanningKind there = here;
  there.name = "there";
  there.memory_bandwidth = BytesPerSecond(4e11);
  const auto times = CarriedTimes(std::make_shared<const graph::Graph>(graph_),
                                  entries({1e-6, 4e-3, 2e-4}), here, there)
                         .times(program_);
  ASSERT_EQ(times.size(), 4U);
  EXPECT_FALSE(times[0]);                       // the load was not measured
  EXPECT_EQ(times[1]->seconds, Seconds(1e-6));  // a view
  const double flops = 2e9 / (0.884 * 1e12), bytes = 12e6 / (0.769 * 1e11);
  const double product_there = flops + bytes / 4;
  EXPECT_NEAR(times[2]->seconds.value,
              2e-4 + 0.85 * 3.8e-3 * product_there / (flops + bytes) + 0.15 * product_there, 1e-12);
  // The shortest kernel is all launch, plus 0.15 of what 10^6 operations and 8 MB take there.
  EXPECT_NEAR(times[3]->seconds.value, 2e-4 + 0.15 * (1e6 / (0.884 * 1e12) + 8e6 / (0.769 * 4e11)),
              1e-12);
  EXPECT_EQ(times[2]->scratch, Bytes(7));
  EXPECT_EQ(times[2]->spread, 0.125);
}

TEST_F(CarriedTimesTest, TheSameKindIsAsMeasured) {
  const cluster::PlanningKind a10 = kind("a10");
  const auto times = CarriedTimes(std::make_shared<const graph::Graph>(graph_),
                                  entries({1e-6, 4e-3, 2e-4}), a10, a10)
                         .times(program_);
  EXPECT_EQ(times[1]->seconds, Seconds(1e-6));
  EXPECT_NEAR(times[2]->seconds.value, 4e-3, 1e-15);
  EXPECT_NEAR(times[3]->seconds.value, 2e-4, 1e-15);
}

}  // namespace
}  // namespace motley::cost
