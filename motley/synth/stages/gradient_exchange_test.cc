#include "motley/synth/stages/gradient_exchange.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/plan/shares.h"
#include "motley/synth/lower.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/testing/drawn_stages.h"
#include "motley/testing/exchange_bench.h"
#include "motley/testing/golden.h"
#include "motley/testing/layered_step.h"
#include "motley/testing/rounds.h"
#include "motley/testing/run_groups.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Rows of a vector, or of the first dimension of a matrix.
graph::Form by_rows(std::int64_t rows) { return {graph::FormKind::kSharded, 0, 1, rows, 1}; }
/// Columns of a matrix.
graph::Form by_columns(std::int64_t columns) {
  return {graph::FormKind::kSharded, 1, 1, columns, 1};
}

/// "at 3": the devices come to a position; "pack 8", "all_reduce 0 2: 8", "reduce_scatter 0 1: 6
/// 2", "send 1: 4", "receive 1: 4": elements, and ranks of the group or the other one; "update a
/// b", "update rows", "assign a". Views and the like are left out.
std::vector<std::string> lines_on(const program::Program& program, std::size_t rank) {
  const program::DeviceProgram& device = program.devices[rank];
  std::vector<std::string> lines;
  std::int64_t position = 0;
  const auto names = [&](const program::Argument& argument) {
    std::string text;
    for (const auto& each : std::get<program::ArgumentList>(argument.value)) {
      const std::string& name = device.buffer(std::get<BufferId>(each.value)).name;
      text += " " + (name.empty() ? "rows" : name);
    }
    return text;
  };
  for (const program::Instruction& each : device.instructions) {
    const std::string op = each.op.substr(each.op.find("::") + 2);
    if (op == "stop_request") lines.push_back(fmt::format("at {}", position++));
    if (op == "pack" || op == "zeros" || op == "add")
      lines.push_back(fmt::format("{} {}", op, device.buffer(each.outputs[0]).elements()));
    if (op == "update" || op == "assign")
      lines.push_back(op + names(each.arguments[op == "update" ? 1 : 0]));
    if (each.lane == Lane::kPeer) {
      const BufferId moved =
          op == "send" ? std::get<BufferId>(each.arguments[0].value) : each.outputs[0];
      lines.push_back(fmt::format("{} {}: {}", op, program::peer_of(each).value,
                                  device.buffer(moved).elements()));
    }
    if (!program::is_collective(each.op)) continue;
    std::vector<std::int64_t> ranks;
    for (const Rank member : program.groups[each.group.index()].members)
      ranks.push_back(member.value);
    const auto parts = program::find_exchange_parts(each);
    const BufferId value = std::get<BufferId>(each.arguments[0].value);
    const std::vector<std::int64_t> counts =
        parts ? parts->counts : std::vector<std::int64_t>{device.buffer(value).elements()};
    lines.push_back(fmt::format("{} {}: {}", op, fmt::join(ranks, " "), fmt::join(counts, " ")));
  }
  return lines;
}

/// The same without positions.
std::vector<std::string> lines_without_positions(const program::Program& program,
                                                 std::size_t rank) {
  std::vector<std::string> lines = lines_on(program, rank);
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("at "); });
  return lines;
}

program::Program lower_sound(ExchangeBench& bench) {
  auto program = bench.lower();
  EXPECT_TRUE(program) << program.error().message;
  if (!program) return {};
  const auto sound = program::verify_program(*program, "bench");
  EXPECT_TRUE(sound) << sound.error().message;
  return *std::move(program);
}

program::Program lower_bench(const Bench& bench) {
  ExchangeBench lowered(bench);
  return lower_sound(lowered);
}

/// What every region gives of its gradients, and what they come to.
struct BenchValues {
  testing::NamedTensors given;
  testing::NamedTensors sums;  ///< by parameter
};

testing::Tensor drawn_like(const testing::Shape& shape, SplitMix64& random) {
  testing::Tensor made = testing::filled(shape, 0);
  for (double& each : made.at) each = 2 * random.uniform() - 1;
  return made;
}

void add_to(testing::Tensor& sum, const testing::Tensor& term) {
  for (std::size_t i = 0; i < sum.at.size(); ++i) sum.at[i] += term.at[i];
}

/// Of a region with a whole gradient all devices have the same, of terms each its own, of parts
/// their rows.
BenchValues draw_gradients(const Bench& bench, std::uint64_t seed) {
  SplitMix64 random(seed);
  BenchValues drawn;
  for (const auto& [name, type] : bench.parameters) {
    auto graph = step_of_lines(fmt::format(
        "param %0: {} \"w\"\nop %1: f32[] = aten::sum(%0, dtype(f32)) fwd \"\"\noutput loss %1\n",
        type));
    const auto shape = testing::draw_values(graph, 1, 1).at("w").shape;
    drawn.given[name] = drawn_like(shape, random);
    testing::Tensor& sum = drawn.sums[name] = testing::filled(shape, 0);
    for (std::size_t s = 0; s < bench.regions.size(); ++s)
      for (const BenchGradient& each : bench.regions[s].gradients) {
        if (each.name != name) continue;
        testing::Tensor whole = drawn_like(shape, random);
        const bool is_cut = each.form.kind == graph::FormKind::kSharded;
        const auto parts = plan::round_shares(bench.regions[s].shares,
                                              is_cut ? each.form.extent : std::int64_t{1});
        std::int64_t begin = 0;
        for (std::size_t m = 0; m < bench.regions[s].ranks.size(); ++m) {
          testing::Tensor here = each.is_term ? drawn_like(shape, random) : whole;
          if (each.is_term || m == 0) add_to(sum, here);
          if (is_cut) {
            const graph::Slab slab = graph::slab_of(shape, each.form);
            here.shape[static_cast<std::size_t>(each.form.dim)] = parts[m] * each.form.inner;
            here.at = testing::rows_of(whole.at, slab, begin, parts[m]);
            begin += parts[m];
          }
          drawn.given[ExchangeBench::gradient_name(name, s, m)] = here;
        }
      }
  }
  return drawn;
}

/// Is every parameter, on every device that has it, less the sum of all gradients times the rate,
/// and does each element of that sum count once for the norm of all?
void expect_sums_of(const Bench& bench, const program::Program& program, std::uint64_t seed) {
  const BenchValues values = draw_gradients(bench, seed);
  testing::GroupsRun run(program, values.given);
  run.run();
  if (::testing::Test::HasFailure()) return;
  double squares = 0, wanted = 0;
  for (const auto& [name, sum] : values.sums) {
    testing::Tensor updated = values.given.at(name);
    for (std::size_t i = 0; i < updated.at.size(); ++i) {
      updated.at[i] -= 0.5 * sum.at[i];
      wanted += sum.at[i] * sum.at[i];
    }
    for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
      for (const program::Buffer& buffer : program.devices[rank].buffers)
        if (buffer.kind == program::BufferKind::kParameter && buffer.name == name)
          testing::expect_near(*run.find(rank, name), testing::ProgramRun::part_of(updated, buffer),
                               fmt::format("{} on rank {}", name, rank));
  }
  for (const testing::StepEnd& each : run.ends) squares += each.squares;
  EXPECT_NEAR(squares, wanted, 1e-9 * std::max(1.0, wanted));
}

void expect_sums(const Bench& bench) { expect_sums_of(bench, lower_bench(bench), 1); }

/// Regions of one device each, in order, that have these gradients.
Bench alone_with(std::vector<std::vector<BenchGradient>> gradients) {
  Bench bench;
  for (auto& each : gradients) {
    bench.regions.push_back({{bench.regions.size()}, {1.0}, std::move(each)});
    for (const BenchGradient& gradient : bench.regions.back().gradients)
      bench.parameters.try_emplace(gradient.name, "f32[4]");
  }
  return bench;
}

// a is there behind position 3 on both devices, c behind 6, b behind 7: two of 16 bytes each make a
// bucket of 32. Each device packs it when its own are there, and the sum begins when both have.
TEST(GradientExchange, BucketsAreFilledInTheOrderInWhichGradientsAreThere) {
  Bench bench = alone_with({{{"a", 2}, {"b", 4}, {"c", 6}}, {{"a", 3}, {"b", 7}, {"c", 5}}});
  bench.bucket_bytes = 32;
  const program::Program program = lower_bench(bench);
  EXPECT_THAT(
      lines_on(program, 0),
      ElementsAre("at 0", "at 1", "at 2", "at 3", "at 4", "pack 4", "at 5", "at 6", "pack 8",
                  "all_reduce 0 1: 8", "at 7", "all_reduce 0 1: 4", "update a c", "update b"));
  EXPECT_THAT(lines_on(program, 1),
              ElementsAre("at 0", "at 1", "at 2", "at 3", "at 4", "at 5", "pack 8", "at 6",
                          "all_reduce 0 1: 8", "at 7", "pack 4", "all_reduce 0 1: 4", "update a c",
                          "update b"));
  expect_sums(bench);
  // One byte less, and none has room for two.
  bench.bucket_bytes = 31;
  EXPECT_EQ(lower_bench(bench).groups.size(), 1U);
  EXPECT_THAT(lines_without_positions(lower_bench(bench), 0),
              ElementsAre("pack 4", "all_reduce 0 1: 4", "pack 4", "pack 4", "all_reduce 0 1: 4",
                          "all_reduce 0 1: 4", "update a", "update c", "update b"));
}

// Until then a region's operators use the lane in which sums travel: these come behind.
TEST(GradientExchange, SumsWaitUntilOperatorsHaveUsedTheLane) {
  Bench bench = alone_with({{{"a", 1}}, {{"a", 2}, {"b", 5}}});
  bench.busy_until = {{0, 4}};
  EXPECT_THAT(lines_on(lower_bench(bench), 0),
              ElementsAre("at 0", "at 1", "pack 4", "at 2", "at 3", "at 4", "all_reduce 0 1: 4",
                          "at 5", "update a"));
  expect_sums(bench);
}

// Three sums: of devices 0 and 1 from time 1 on, of 0 and 2 from 2 on, of 2 and 3 from 3 on. At 12
// bytes a unit of time the first one, of 16 bytes that go out and come back, takes 32 / 12: device
// 0 is in it until 3.7, so the third goes first. At 1000 it is over at once, and where rates are
// not known all are: then they come in the order in which they are there.
TEST(GradientExchange, ASumWhoseHoldersAreFreeGoesBeforeOneThatWouldWait) {
  Bench bench = alone_with({{{"a", 0}, {"b", 1}}, {{"a", 0}}, {{"b", 1}, {"c", 2}}, {{"c", 2}}});
  bench.times = {1, 2, 3};
  const auto lines_at = [&](const std::vector<double>& rates) {
    for (std::size_t r = 0; r < rates.size(); ++r) bench.regions[r].rate = rates[r];
    expect_sums(bench);
    return lines_without_positions(lower_bench(bench), 2);
  };
  const auto in_order = ElementsAre("pack 4", "all_reduce 0 2: 4", "pack 4", "all_reduce 2 3: 4",
                                    "update b", "update c");
  const auto third_first = ElementsAre("pack 4", "pack 4", "all_reduce 2 3: 4", "all_reduce 0 2: 4",
                                       "update c", "update b");
  EXPECT_THAT(lines_at({0, 0, 0, 0}), in_order);
  EXPECT_THAT(lines_at({12, 12, 12, 12}), third_first);
  EXPECT_THAT(lines_at({1000, 1000, 1000, 1000}), in_order);
  // The slowest holder counts, of those that are known.
  EXPECT_THAT(lines_at({1000, 12, 1000, 1000}), third_first);
  EXPECT_THAT(lines_at({0, 12, 0, 0}), third_first);
  EXPECT_THAT(lines_at({12, 0, 0, 0}), third_first);
}

// Devices 0 and 1 share a region and have the same gradient: one gives it, the other zeros. Of
// terms all give their own.
TEST(GradientExchange, OneDeviceGivesWhatAllOfARegionHave) {
  Bench bench{{{"a", "f32[4]"}}, {{{0, 1}, {2.0, 1.0}, {{"a", 0}}}, {{2}, {1.0}, {{"a", 0}}}}};
  EXPECT_THAT(lines_without_positions(lower_bench(bench), 0),
              ElementsAre("pack 4", "all_reduce 0 1 2: 4", "update a"));
  EXPECT_THAT(lines_without_positions(lower_bench(bench), 1),
              ElementsAre("zeros 4", "pack 4", "all_reduce 0 1 2: 4", "update a"));
  expect_sums(bench);
  bench.regions[0].gradients[0].is_term = true;
  EXPECT_THAT(lines_without_positions(lower_bench(bench), 1),
              ElementsAre("pack 4", "all_reduce 0 1 2: 4", "update a"));
  expect_sums(bench);
}

// Eight rows as 5 and 3 on devices 0 and 1, as 4 and 4 on 2 and 3: rows 0 to 3 are on 0 and 2, row
// 4 on 0 and 3, the others on 1 and 3.
TEST(GradientExchange, PartsThatAreCutByOtherSharesAreSummedByTheirIntervals) {
  Bench bench{
      {{"a", "f32[8]"}, {"m", "f32[2, 8]"}},
      {{{0, 1}, {5.0, 3.0}, {{"a", 0, by_rows(8)}}}, {{2, 3}, {1.0, 1.0}, {{"a", 0, by_rows(8)}}}}};
  const program::Program program = lower_bench(bench);
  EXPECT_THAT(
      lines_without_positions(program, 0),
      ElementsAre("pack 4", "all_reduce 0 2: 4", "pack 1", "all_reduce 0 3: 1", "update a"));
  EXPECT_THAT(lines_without_positions(program, 1),
              ElementsAre("pack 3", "all_reduce 1 3: 3", "update a"));
  EXPECT_THAT(
      lines_without_positions(program, 3),
      ElementsAre("pack 1", "all_reduce 0 3: 1", "pack 3", "all_reduce 1 3: 3", "update a"));
  expect_sums(bench);
  // Columns of two rows: twice as many elements.
  for (BenchRegion& region : bench.regions) region.gradients = {{"m", 0, by_columns(8)}};
  EXPECT_THAT(
      lines_without_positions(lower_bench(bench), 0),
      ElementsAre("pack 8", "all_reduce 0 2: 8", "pack 2", "all_reduce 0 3: 2", "update m"));
  expect_sums(bench);
}

// One region has it in parts, the other one whole.
TEST(GradientExchange, AWholeGradientIsSummedPartByPart) {
  const Bench bench{{{"a", "f32[8]"}},
                    {{{0, 1}, {5.0, 3.0}, {{"a", 0, by_rows(8)}}}, {{2}, {1.0}, {{"a", 0}}}}};
  EXPECT_THAT(
      lines_without_positions(lower_bench(bench), 2),
      ElementsAre("pack 5", "all_reduce 0 2: 5", "pack 3", "all_reduce 1 2: 3", "update a"));
  expect_sums(bench);
}

// The last rows are there first: their sum comes first, and the whole has all in their places.
TEST(GradientExchange, PartsComeBackInTheirPlaces) {
  Bench bench{{{"a", "f32[8]"}},
              {{{0, 1}, {5.0, 3.0}, {{"a", 0, by_rows(8)}}}, {{2}, {1.0}, {{"a", 0}}}}};
  bench.regions[0].gradients[0].by_member = {6, 2};
  const program::Program program = lower_bench(bench);
  EXPECT_THAT(
      lines_without_positions(program, 2),
      ElementsAre("pack 3", "pack 5", "all_reduce 1 2: 3", "all_reduce 0 2: 5", "update a"));
  expect_sums(bench);
}

// The second device of three has none of eight rows: no sum, and an update of nothing.
TEST(GradientExchange, ADeviceWithoutAShareTakesNoPart) {
  const Bench bench{
      {{"a", "f32[8]"}},
      {{{0, 1, 2}, {3.0, 0.0, 1.0}, {{"a", 0, by_rows(8)}}}, {{3}, {1.0}, {{"a", 0}}}}};
  const program::Program program = lower_bench(bench);
  EXPECT_THAT(lines_without_positions(program, 1), ElementsAre("update a"));
  EXPECT_THAT(
      lines_without_positions(program, 3),
      ElementsAre("pack 6", "all_reduce 0 3: 6", "pack 2", "all_reduce 2 3: 2", "update a"));
  expect_sums(bench);
}

// Device 0 has two regions with the weight: it adds their gradients up, when both are there, and
// updates once.
TEST(GradientExchange, RegionsOfOneDeviceGiveOneGradient) {
  Bench bench = alone_with({{{"a", 1}}, {{"a", 0}}, {{"a", 3}}});
  bench.regions[2].ranks = {0};
  const program::Program program = lower_bench(bench);
  EXPECT_THAT(lines_on(program, 0), ElementsAre("at 0", "at 1", "at 2", "at 3", "add 4", "pack 4",
                                                "all_reduce 0 1: 4", "update a"));
  expect_sums(bench);
  // On no other device: nothing to exchange.
  bench.regions[1].ranks = {0};
  EXPECT_THAT(lines_without_positions(lower_bench(bench), 0),
              ElementsAre("add 4", "add 4", "pack 4", "update a"));
  expect_sums(bench);
}

// 16-bit gradients travel by themselves.
TEST(GradientExchange, ABucketHasOneDtype) {
  Bench bench = alone_with({{{"a", 0}, {"b", 0}, {"c", 0}}, {{"a", 0}, {"b", 0}, {"c", 0}}});
  bench.parameters["b"] = "bf16[4]";
  EXPECT_THAT(lines_without_positions(lower_bench(bench), 0),
              ElementsAre("pack 8", "all_reduce 0 1: 8", "pack 4", "all_reduce 0 1: 4",
                          "update a c", "update b"));
  expect_sums(bench);
}

// Of one region alone nothing is exchanged; its devices have summed it in a bucket of their own, or
// in none, and are told by its name. It counts for the norm once, parts on every device.
TEST(GradientExchange, WhatOneRegionHasAloneIsUpdatedAsItIs) {
  const Bench bench{{{"a", "f32[4]"}, {"b", "f32[4]"}, {"c", "f32[6]"}},
                    {{{0, 1},
                      {2.0, 1.0},
                      {{"a", 0}, {"b", 0, graph::kWholeForm, false, 3}, {"c", 0, by_rows(6)}}}}};
  const program::Program program = lower_bench(bench);
  EXPECT_TRUE(program.groups.empty());
  for (const std::size_t rank : {0, 1}) {
    std::vector<std::string> labels;
    for (const program::Instruction& each : program.devices[rank].instructions)
      if (each.op == "motley::update") labels.push_back(each.label);
    EXPECT_THAT(labels, ElementsAre("update", "bucket 3"));
    EXPECT_THAT(lines_without_positions(program, rank), ElementsAre("update a c", "update b"));
  }
  expect_sums(bench);
}

// Shares 3 and 1 of eight rows: six and two. Each gets the sum of its own rows, updates these, and
// sends them to the other.
TEST(GradientExchange, StatesThatAreSharedAreUpdatedByTheirOwners) {
  Bench bench = alone_with({{{"a", 0}}, {{"a", 0}}});
  bench.parameters["a"] = "f32[8]";
  bench.owners["a"] = {3, 1};
  bench.options.recipe.optimizer.momentum = 0.9;
  ExchangeBench lowered(bench);
  const auto program = lowered.lower();
  ASSERT_TRUE(program);
  EXPECT_THAT(lowered.shared(), ElementsAre("a"));
  for (const std::size_t rank : {0, 1}) {
    std::vector<std::string> lines = {"pack 8", "reduce_scatter 0 1: 6 2", "update rows"};
    if (rank == 0) lines.insert(lines.end(), {"pack 6", "send 1: 6", "receive 1: 2"});
    if (rank == 1) lines.insert(lines.end(), {"receive 0: 6", "pack 2", "send 0: 2"});
    lines.push_back("assign a");
    EXPECT_EQ(lines_without_positions(*program, rank), lines);
    for (const program::Buffer& buffer : program->devices[rank].buffers)
      if (buffer.kind == program::BufferKind::kState) {
        EXPECT_EQ(buffer.name, "a/momentum");
        EXPECT_THAT(buffer.shape, ElementsAre(rank == 0 ? 6 : 2));
        EXPECT_EQ(buffer.part, (program::Part{1, rank == 0 ? 0 : 6, 8, 1}));
      }
  }
  expect_sums(bench);
}

// Device 1 owns no rows: it has no states and updates nothing, but gives its gradient and gets all
// rows.
TEST(GradientExchange, WhoHasNoShareOfStatesOwnsNone) {
  Bench bench = alone_with({{{"a", 0}}, {{"a", 0}}});
  bench.parameters["a"] = "f32[8]";
  bench.owners["a"] = {1, 0};
  bench.options.recipe.optimizer.momentum = 0.9;
  const program::Program program = lower_bench(bench);
  EXPECT_THAT(lines_without_positions(program, 0),
              ElementsAre("pack 8", "reduce_scatter 0 1: 8 0", "update a", "pack 8", "send 1: 8",
                          "assign a"));
  EXPECT_THAT(lines_without_positions(program, 1),
              ElementsAre("pack 8", "reduce_scatter 0 1: 8 0", "receive 0: 8", "assign a"));
  for (const program::Buffer& buffer : program.devices[1].buffers)
    EXPECT_NE(buffer.kind, program::BufferKind::kState) << buffer.name;
  expect_sums(bench);
}

// Device 0 has the weight in two regions and no share of its states: it has none for either.
TEST(GradientExchange, NoRegionOfADeviceHasStatesThatOthersOwn) {
  Bench bench = alone_with({{{"a", 0}}, {{"a", 0}}, {{"a", 0}}});
  bench.regions[2].ranks = {0};
  bench.owners["a"] = {0, 1};
  bench.options.recipe.optimizer.momentum = 0.9;
  for (const program::Buffer& buffer : lower_bench(bench).devices[0].buffers)
    EXPECT_NE(buffer.kind, program::BufferKind::kState) << buffer.name;
  expect_sums(bench);
}

// A number has no rows; none of b's holders has a share; of a the devices 0 and 2 own four rows
// each. Buckets with owners and without do not mix.
TEST(GradientExchange, WhatHasNoOwnersIsUpdatedByAll) {
  Bench bench = alone_with({{{"a", 0}, {"s", 0}}, {{"b", 0}}, {{"a", 0}, {"s", 0}}, {{"b", 0}}});
  bench.parameters["a"] = "f32[8]";
  bench.parameters["s"] = "f32[]";
  bench.owners["a"] = bench.owners["b"] = bench.owners["s"] = {1, 0, 1, 0};
  ExchangeBench lowered(bench);
  const auto program = lowered.lower();
  ASSERT_TRUE(program);
  EXPECT_THAT(lowered.shared(), ElementsAre("a"));
  EXPECT_THAT(lines_without_positions(*program, 0),
              ElementsAre("pack 8", "reduce_scatter 0 2: 4 4", "pack 1", "all_reduce 0 2: 1",
                          "update rows", "pack 4", "all_gather 0 2: 4 4", "update s", "assign a"));
  EXPECT_THAT(lines_without_positions(*program, 1),
              ElementsAre("pack 4", "all_reduce 1 3: 4", "update b"));
  expect_sums(bench);
  // Lamb looks at all of a parameter.
  bench.options.recipe.optimizer.kind = plan::OptimizerKind::kLamb;
  ExchangeBench with_lamb(bench);
  ASSERT_TRUE(with_lamb.lower());
  EXPECT_THAT(with_lamb.shared(), IsEmpty());
}

// Device 2 has rows 0 to 4 with device 0 and the others with device 1. It owns as much as both
// together, four rows: two of each bucket, and updates when both sums are there.
TEST(GradientExchange, OwnRowsInSeveralBucketsAreUpdatedTogether) {
  Bench bench{{{"a", "f32[8]"}},
              {{{0, 1}, {1.0, 1.0}, {{"a", 0, by_rows(8)}}}, {{2}, {1.0}, {{"a", 0}}}}};
  bench.owners["a"] = {1, 1, 2};
  const program::Program program = lower_bench(bench);
  std::int64_t updates = 0;
  for (const std::string& line : lines_without_positions(program, 2))
    updates += line.starts_with("update") ? 1 : 0;
  EXPECT_EQ(updates, 1);
  expect_sums(bench);
}

// Device 0 is a's server, device 1 b's, and both sum c: buckets of one owner each.
TEST(GradientExchange, EachParameterHasOwnersOfItsOwn) {
  Bench bench = alone_with({{{"a", 0}, {"b", 0}, {"c", 0}}, {{"a", 0}, {"b", 0}, {"c", 0}}});
  bench.owners = {{"a", {1, 0}}, {"b", {0, 1}}};
  ExchangeBench lowered(bench);
  const auto program = lowered.lower();
  ASSERT_TRUE(program);
  EXPECT_THAT(lowered.shared(), ElementsAre("a", "b"));
  EXPECT_THAT(
      lines_without_positions(*program, 0),
      ElementsAre("pack 8", "reduce_scatter 0 1: 4 4", "pack 4", "all_reduce 0 1: 4", "update a",
                  "pack 4", "send 1: 4", "receive 1: 4", "update c", "assign a", "assign b"));
  expect_sums(bench);
}

// Two nodes of two devices; device 0 owns three quarters, device 2 the rest. Sums go within nodes
// first, and what a node gets one device passes on.
TEST(GradientExchange, NewRowsGoToEachNodeOnce) {
  Bench bench = alone_with({{{"a", 0}}, {{"a", 0}}, {{"a", 0}}, {{"a", 0}}});
  bench.parameters["a"] = "f32[8]";
  bench.owners["a"] = {3, 0, 1, 0};
  bench.nodes = {0, 0, 1, 1};
  const program::Program program = lower_bench(bench);
  EXPECT_THAT(lines_without_positions(program, 0),
              ElementsAre("pack 8", "reduce_scatter 0 1 2 3: 6 0 2 0", "update rows", "pack 6",
                          "send 1: 6", "send 2: 6", "receive 2: 2", "send 1: 2", "assign a"));
  EXPECT_THAT(lines_without_positions(program, 1),
              ElementsAre("pack 8", "reduce_scatter 0 1 2 3: 6 0 2 0", "receive 0: 6",
                          "receive 0: 2", "assign a"));
  EXPECT_THAT(
      lines_without_positions(program, 2),
      ElementsAre("pack 8", "reduce_scatter 0 1 2 3: 6 0 2 0", "update rows", "receive 0: 6",
                  "send 3: 6", "pack 2", "send 0: 2", "send 3: 2", "assign a"));
  for (const program::Instruction& each : program.devices[3].instructions)
    if (each.op == program::kReduceScatter) {
      EXPECT_EQ(each.overload, "hierarchical");
    }
  expect_sums(bench);
  bench.owners["a"] = {1, 1, 1, 1};
  EXPECT_THAT(lines_without_positions(lower_bench(bench), 3),
              ElementsAre("pack 8", "reduce_scatter 0 1 2 3: 2 2 2 2", "update rows", "pack 2",
                          "all_gather 0 1 2 3: 2 2 2 2", "assign a"));
  expect_sums(bench);
}

// As soon as a bucket's rows are updated they go back, in front of the next update; where the norm
// of all gradients counts, when all are.
TEST(GradientExchange, RowsGoBackAtOnceUnlessAllGradientsMustBeThere) {
  Bench bench = alone_with({{{"a", 0}, {"b", 1}}, {{"a", 0}, {"b", 1}}});
  bench.bucket_bytes = 16;
  bench.owners["a"] = bench.owners["b"] = {1, 1};
  EXPECT_THAT(lines_without_positions(lower_bench(bench), 0),
              ElementsAre("pack 4", "reduce_scatter 0 1: 2 2", "pack 4", "reduce_scatter 0 1: 2 2",
                          "update rows", "pack 2", "all_gather 0 1: 2 2", "update rows", "pack 2",
                          "all_gather 0 1: 2 2", "assign a", "assign b"));
  expect_sums(bench);
  bench.options.recipe.clip_norm = 1e9;
  EXPECT_THAT(lines_without_positions(lower_bench(bench), 0),
              ElementsAre("pack 4", "reduce_scatter 0 1: 2 2", "pack 4", "reduce_scatter 0 1: 2 2",
                          "update rows", "update rows", "pack 2", "all_gather 0 1: 2 2", "pack 2",
                          "all_gather 0 1: 2 2", "assign a", "assign b"));
  expect_sums(bench);
}

TEST(GradientExchange, RegionsThatShareAParameterCutItIdentical) {
  Bench bench{{{"m", "f32[6, 8]"}},
              {{{0, 1}, {1.0, 1.0}, {{"m", 0, by_rows(6)}}},
               {{2, 3}, {1.0, 1.0}, {{"m", 0, by_columns(8)}}}}};
  const auto refused = ExchangeBench(bench).lower();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(refused.error().code, "synth.unsupported");
  EXPECT_EQ(refused.error().message,
            "parameter 'm' is kept as S(0: 6) by one region and as S(1: 8) by another; regions "
            "that share it must cut it alike");
  // By other shares, and as two blocks of three rows, which is another cut.
  bench.regions[1].gradients[0].form = by_rows(6);
  bench.regions[1].shares = {5, 1};
  expect_sums(bench);
  bench.regions[1].gradients[0].form = {graph::FormKind::kSharded, 0, 2, 3, 1};
  EXPECT_EQ(ExchangeBench(bench).lower().error().message,
            "parameter 'm' is kept as S(0: 6) by one region and as S(0: 2*3*1) by another; regions "
            "that share it must cut it alike");
}

/// Regions of one or several devices, some devices in several regions, that have some of five
/// parameters in any way, at any time.
class BenchDraw {
 public:
  explicit BenchDraw(std::uint64_t seed) : random_(seed) {}

  Bench bench() {
    Bench made;
    made.parameters = {
        {"a", "f32[8]"}, {"m", "f32[3, 8]"}, {"b", "f32[5]"}, {"s", "f32[]"}, {"h", "bf16[8]"}};
    std::vector<std::size_t> single;
    std::size_t ranks = 0;
    const std::size_t regions = 2 + below(4);
    for (std::size_t r = 0; r < regions; ++r) {
      BenchRegion region;
      region.rate = static_cast<double>(8 * below(3));
      const std::size_t devices = below(3) == 0 ? 2 + below(2) : 1;
      for (std::size_t d = 0; d < devices; ++d) {
        // A device of several regions shares none of them.
        const bool is_known = devices == 1 && !single.empty() && below(3) == 0;
        region.ranks.push_back(is_known ? single[below(single.size())] : ranks++);
        region.shares.push_back(d == 0 ? 2 : static_cast<double>(below(4)));
      }
      if (devices == 1) single.push_back(region.ranks.front());
      draw_gradients_of(made, region);
      made.regions.push_back(std::move(region));
    }
    sum_what_is_alone(made);
    constexpr std::int64_t kBytes[] = {1, 20, 64, 1 << 20};
    made.bucket_bytes = kBytes[below(4)];
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (below(4) == 0) made.busy_until[rank] = static_cast<std::int64_t>(below(10));
    }
    for (const auto& [name, type] : made.parameters) {
      if (below(3) == 0) continue;
      std::vector<double>& shares = made.owners[name];
      while (shares.size() < ranks) shares.push_back(static_cast<double>(below(3)));
    }
    for (std::size_t p = 0; p < 10; ++p)
      made.times.push_back(static_cast<double>(10 * p + below(10)));
    if (below(3) == 0) made.options.recipe.clip_norm = 1e9;
    return made;
  }

 private:
  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_.below(bound)); }

  /// A region sums terms itself of what no other region has.
  static void sum_what_is_alone(Bench& bench) {
    std::map<std::string, int> regions;
    for (const BenchRegion& region : bench.regions)
      for (const BenchGradient& each : region.gradients) ++regions[each.name];
    for (BenchRegion& region : bench.regions)
      for (BenchGradient& each : region.gradients)
        each.is_term = each.is_term && regions[each.name] > 1;
  }

  void draw_gradients_of(const Bench& bench, BenchRegion& region) {
    for (const auto& [name, type] : bench.parameters) {
      if (below(3) == 0 && name != "b") continue;
      BenchGradient each{name, static_cast<std::int64_t>(below(10))};
      const std::size_t how = region.ranks.size() > 1 ? below(3) : 0;
      if (how == 1) each.is_term = true;
      if (how == 2 && name == "a") each.form = by_rows(8);
      if (how == 2 && name == "m") each.form = by_columns(8);
      if (below(3) == 0)
        for (std::size_t m = 0; m < region.ranks.size(); ++m)
          each.by_member.push_back(static_cast<std::int64_t>(below(10)));
      region.gradients.push_back(each);
    }
  }

  SplitMix64 random_;
};

TEST(GradientExchange, HoweverItIsKeptAGradientIsTheSumOfAllRegions) {
  std::int64_t with_owners = 0, with_groups = 0;
  for (std::uint64_t seed = 0; seed < testing::rounds(100, 4000); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Bench bench = BenchDraw(seed).bench();
    ExchangeBench lowered(bench);
    const program::Program program = lower_sound(lowered);
    expect_sums_of(bench, program, seed);
    if (HasFailure()) return;
    with_owners += lowered.shared().empty() ? 0 : 1;
    with_groups += program.groups.size() > 2 ? 1 : 0;
  }
  EXPECT_GT(with_owners, 20);
  EXPECT_GT(with_groups, 20);
}

cluster::Cluster many_devices(int count) {
  cluster::Cluster cluster;
  cluster.name = "lab";
  cluster.nodes.push_back({"a"});
  for (int i = 0; i < count; ++i) {
    cluster::Device device;
    device.node = NodeId(0);
    device.name = fmt::format("a:{}", i);
    device.kind = "cpu";
    device.index = i;
    cluster.devices.push_back(device);
  }
  return cluster;
}

/// Do all devices of the lowered plan report the graph's loss, and has each after a step of SGD
/// what one device would have of the parameters that it keeps?
void expect_trains_as_one(const graph::Graph& graph, const plan::Plan& plan, std::uint64_t seed) {
  const auto program = lower(graph, plan, many_devices(12));
  ASSERT_TRUE(program) << program.error().message;
  testing::NamedTensors given = testing::draw_values(graph, plan.global_batch, seed);
  if (given.contains("y")) given.at("y").at[0] = 0;  // at least one label counts
  const testing::StepValues whole = testing::run_graph(graph, plan.global_batch, given);
  testing::GroupsRun run(*program, given);
  run.run();
  if (::testing::Test::HasFailure()) return;
  for (std::size_t rank = 0; rank < program->devices.size(); ++rank) {
    EXPECT_NEAR(run.ends[rank].loss, whole.loss, 1e-9 * std::max(1.0, std::abs(whole.loss)));
    for (const program::Buffer& buffer : program->devices[rank].buffers) {
      if (buffer.kind != program::BufferKind::kParameter) continue;
      testing::Tensor updated = given.at(buffer.name);
      for (std::size_t i = 0; i < updated.at.size(); ++i)
        updated.at[i] -= plan.recipe.optimizer.lr * whole.gradients.at(buffer.name).at[i];
      testing::expect_near(*run.find(rank, buffer.name),
                           testing::ProgramRun::part_of(updated, buffer),
                           fmt::format("{} on rank {}", buffer.name, rank));
    }
  }
}

/// All of the graph on devices 0, 1, ... by these shares, for so many samples at a time.
plan::Region spread_region(const graph::Graph& graph, const std::vector<double>& shares,
                           std::int64_t batch, Kept kept) {
  Sharding sharding;
  sharding.shares = shares;
  for (std::size_t i = 0; i < shares.size(); ++i)
    sharding.devices.push_back(fmt::format("a:{}", i));
  sharding.batch = batch;
  spread_samples(graph, sharding);
  if (kept == Kept::kInParts) keep_parameters_in_parts(graph, sharding);
  return make_region(graph, sharding, many_devices(12));
}

// The first replica's samples are spread over three devices, of which the second may have none,
// with weights whole or in parts, in two micro-batches of four; the second replica's three go
// through two stages.
TEST(GradientExchange, UnevenSharesBesideStagesTrainAsOneDevice) {
  const graph::Graph graph = layered_step({.layers = 2});
  for (const std::vector<double>& shares : {std::vector<double>{3, 0, 1}, {1, 2, 1}, {0, 0, 1}})
    for (const Kept kept : {Kept::kWhole, Kept::kInParts})
      for (const bool is_shared : {false, true}) {
        SCOPED_TRACE(fmt::format("{} of {}, states {}", kept == Kept::kWhole ? "whole" : "parts",
                                 fmt::join(shares, " "), is_shared));
        plan::Plan plan = plan_of_replicas(
            {{8, {spread_region(graph, shares, 4, kept)}, 2},
             {3, {modules_on(graph, 3, {"l0"}), modules_on(graph, 4, {"l1", "loss"})}, 3}});
        plan.bucket_bytes = Bytes(16);
        plan.owners.clear();
        if (is_shared) plan.owners.push_back({{"*"}, {}});
        for (std::int64_t device = 0; is_shared && device < 5; ++device)
          plan.owners[0].shares[DeviceId(device)] = static_cast<double>(device);
        expect_trains_as_one(graph, plan, 7);
      }
}

// However many micro-batches there are, a step exchanges each gradient once.
TEST(GradientExchange, MicroBatchesAreAddedUpBeforeTheyAreExchanged) {
  const graph::Graph graph = layered_step({.layers = 2});
  for (const std::int64_t times : {1, 4}) {
    plan::Plan plan = plan_of_replicas(
        {{4, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1", "loss"})}, times},
         {3, {modules_on(graph, 2, {"l0"}), modules_on(graph, 3, {"l1", "loss"})}, 3}});
    const auto program = lower(graph, plan, many_devices(4));
    ASSERT_TRUE(program) << program.error().message;
    std::vector<std::string> lines = lines_without_positions(*program, 1);
    std::erase_if(lines, [](const std::string& line) {
      return line.starts_with("add") || line.starts_with("send") || line.starts_with("receive");
    });
    // The weight of l1; then the loss and the wish to stop.
    EXPECT_THAT(lines, ElementsAre("pack 9", "all_reduce 1 3: 9", "update w1", "pack 2",
                                   "all_reduce 0 1 2 3: 2"))
        << times;
  }
}

// c is in a penalty and meets no sample: each replica could make its gradient, and one does.
TEST(GradientExchange, APenaltysGradientCountsOnce) {
  const graph::Graph graph = step_of_lines(
      "input %0: f32[batch, 3] \"x\"\nparam %1: f32[3] \"w\"\nparam %2: f32[3] \"c\"\n"
      "op %3: f32[batch, 3] = aten::mul.Tensor(%0, %1) fwd \"l0\"\n"
      "op %4: f32[] = aten::sum(%3, none) fwd \"l0\"\n"
      "op %5: f32[3] = aten::mul.Tensor(%2, %2) fwd \"l1\"\n"
      "op %6: f32[] = aten::sum(%5, none) fwd \"l1\"\n"
      "op %7: f32[] = aten::add.Tensor(%4, %6, 1) fwd \"l1\"\n"
      "op %8: f32[1, 3] = aten::sum.dim_IntList(%0, [0], true, none) bwd \"l0\"\n"
      "op %9: f32[3] = aten::view(%8, [3]) bwd \"l0\"\n"
      "op %10: f32[3] = aten::mul.Scalar(%2, 2) bwd \"l1\"\n"
      "output loss %7\noutput gradient %9 of \"w\"\noutput gradient %10 of \"c\"\n");
  const plan::Replica alone{3, {plan::Region{{DeviceId(2)}, {1.0}}}, 2};
  expect_trains_as_one(
      graph,
      plan_of_replicas(
          {{4, {modules_on(graph, 0, {"l0"}), modules_on(graph, 1, {"l1"})}, 2}, alone}),
      1);
}

TEST(GradientExchange, DrawnReplicasTrainAsOneDevice) {
  const std::vector<graph::Graph> graphs = {layered_step({.layers = 3, .weights = 2}),
                                            layered_step({.layers = 2, .width = 5})};
  for (std::uint64_t seed = 0; seed < testing::rounds(60, 2000); ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const graph::Graph& graph = graphs[seed % graphs.size()];
    StagesDraw draw(graph, seed);
    plan::Plan plan = draw.plan();
    constexpr std::int64_t kBytes[] = {1, 40, 100, 1 << 20};
    plan.bucket_bytes = Bytes(kBytes[draw.below(4)]);
    const bool is_shared = draw.below(2) == 0;
    if (is_shared) plan.owners.push_back({{"*"}, {}});
    for (const plan::Member& member : plan::members(plan))
      if (is_shared) plan.owners[0].shares[member.device] = static_cast<double>(1 + draw.below(3));
    expect_trains_as_one(graph, plan, seed);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace motley::synth
