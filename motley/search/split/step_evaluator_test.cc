#include "motley/search/split/step_evaluator.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "motley/base/random.h"
#include "motley/cost/measured/whole_step.h"
#include "motley/graph/graph_text.h"
#include "motley/program/memory.h"
#include "motley/program/program_text.h"
#include "motley/search/price/profile_batches.h"
#include "motley/search/split/split_planner.h"
#include "motley/search/split/water_filling.h"
#include "motley/synth/lower.h"
#include "motley/testing/places.h"

namespace motley::search {
namespace {

using Setting = SplitEvaluator::Setting;
using ::testing::ElementsAre;

constexpr std::int64_t kSamples = 40;
constexpr double kNanosecond = 1e-9;

std::string text_of(const std::string& path) {
  return read_file(testing::source_path(path)).value();
}

/// A golden model on three emulated devices, with a store of invented times: an instruction takes
/// 20 us plus 2 ns per byte that it writes, a sum 300 us plus 5 ns per byte.
class Bench {
 public:
  explicit Bench(const std::string& model, double latency = 300e-6) {
    std::string directory = (std::filesystem::temp_directory_path() / "search-XXXXXX").string();
    EXPECT_NE(::mkdtemp(directory.data()), nullptr);
    directory_ = directory;
    graph::Model& loaded = model_;
    loaded.graph =
        graph::parse_graph(text_of("/tests/golden/synth/" + model + ".graph.txt"), model).value();
    loaded.hash = "00000000000000aa";
    cluster_ = cluster::parse_cluster(R"(schema = "motley.cluster/1"
name = "three"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  speed = 0.8
  [[node.device]]
  kind = "cpu"
  speed = 0.4
  [[node.device]]
  kind = "cpu"
  speed = 0.2
)",
                                      "three")
                   .value();
    options_.lowering.bucket_bytes = Bytes(64 << 10);
    options_.torch = "2.15.0";
    options_.global_batch = kSamples;
    options_.devices = {DeviceId(0), DeviceId(1), DeviceId(2)};
    latency_ = latency;
  }
  ~Bench() { std::filesystem::remove_all(directory_); }

  cost::ProfileStore store() const {
    return cost::ProfileStore::open(directory_ + "/profile.db").value();
  }

  void profile(double slow = 1.0) {
    slow_ = slow;
    cost::ProfileStore store = this->store();
    const cost::DeviceKey alone = cost::device_key(cluster_.devices[0], "2.15.0");
    const cost::DeviceKey shared = cost::shared_key(cluster_, DeviceId(0), "2.15.0");
    const auto batches = profile_batches(kSamples, 4096);
    std::vector<cost::OpEntry> entries;
    for (const std::int64_t batch : batches) {
      add_entries(batch, 1, alone, entries);
      add_entries(batch, 2, shared, entries);
    }
    for (const DeviceId id : options_.devices) add_step(id, batches.back(), entries);
    EXPECT_TRUE(store.put(entries).has_value());
    EXPECT_TRUE(store.put_batches(subject(), alone, batches).has_value());
    EXPECT_TRUE(store.put_batches(subject(), shared, batches).has_value());
    std::vector<cost::CollectiveEntry> sums;
    for (const int ranks : {2, 3}) {
      for (const double bytes : {4.0, 1e6}) {
        sums.push_back({.op = "motley::all_reduce",
                        .backend = "gloo",
                        .route = "local",
                        .ranks = ranks,
                        .bytes = Bytes(static_cast<std::int64_t>(bytes)),
                        .median = Seconds(latency_ * ranks + 5 * kNanosecond * bytes),
                        .samples = 1});
      }
    }
    EXPECT_TRUE(store.put(sums).has_value());
  }

  Result<Costs> costs() const { return load_costs(model_, cluster_, store(), options_); }

  std::unique_ptr<StepEvaluator> evaluator() const {
    return StepEvaluator::make(model_.graph, cluster_, options_.lowering, costs().value()).value();
  }

  plan::Problem problem() const {
    plan::Problem problem;
    problem.cluster = &cluster_;
    problem.model_hash = model_.hash;
    problem.global_batch = kSamples;
    problem.bucket_bytes = options_.lowering.bucket_bytes;
    problem.devices = options_.devices;
    return problem;
  }

  program::DeviceProgram lower(std::int64_t batch, int ranks) const {
    return synth::lower_first(model_.graph, {batch, ranks}, options_.lowering).value();
  }

 private:
  std::string subject() const { return profile_subject(model_.hash, options_.lowering); }
  void add_entries(std::int64_t batch, int ranks, const cost::DeviceKey& key,
                   std::vector<cost::OpEntry>& entries) const {
    const program::DeviceProgram program = lower(batch, ranks);
    for (const program::Instruction& instruction : program.instructions) {
      if (instruction.lane == Lane::kTransfer) continue;
      double bytes = 0;
      for (const BufferId output : instruction.outputs) {
        bytes += static_cast<double>(program.buffer(output).bytes().value);
      }
      entries.push_back({.device = key,
                         .key = program::cost_key(program, instruction),
                         .median = Seconds(20e-6 + 2 * kNanosecond * bytes),
                         .samples = 1});
    }
  }

  /// Adds a whole step of `slow` times its instructions' time, at the device's speed.
  void add_step(DeviceId id, std::int64_t batch, std::vector<cost::OpEntry>& entries) const {
    std::vector<cost::OpEntry> parts;
    add_entries(batch, 2, {}, parts);
    double seconds = 0;
    for (const cost::OpEntry& part : parts) seconds += part.median.value;
    const cost::DeviceKey key = cost::emulated_key(cluster_, id, "2.15.0");
    entries.push_back(cost::step_entry(key, subject(), batch));
    entries.back().median = Seconds(slow_ * seconds / cluster_.device(id).speed);
    entries.back().samples = 1;
  }

  std::string directory_;
  double slow_ = 1.0;
  graph::Model model_;
  cluster::Cluster cluster_;
  CostOptions options_;
  double latency_ = 0;
};

BatchSplit draw_split(SplitMix64& random, const plan::Problem& problem) {
  BatchSplit split;
  std::int64_t left = problem.global_batch;
  for (const DeviceId device : problem.devices) {
    const auto samples =
        static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(left) + 1));
    if (samples > 0) {
      split.devices.push_back(device);
      split.samples.push_back(samples);
    }
    left -= samples;
  }
  if (split.samples.empty()) return {{problem.devices[0]}, {problem.global_batch}};
  split.samples.back() += left;
  return split;
}

// The count of labels is exchanged at the start with the forward pass as slack, so nothing blocks
// and the closed form equals the simulator's result up to whole nanoseconds.
TEST(StepEvaluator, ModelEqualsTheSimulator) {
  Bench bench("mlp");
  bench.profile();
  const auto evaluator = bench.evaluator();
  const plan::Problem problem = bench.problem();
  EXPECT_EQ(evaluator->group_times(problem.devices).blocking, 0.0);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 random(seed);
    const BatchSplit split = draw_split(random, problem);
    const double simulated = evaluator->step_time(make_split_plan(problem, split))->value;
    EXPECT_NEAR(model_step(*evaluator, split) / simulated, 1.0, 1e-4);
  }
}

// Batch norm exchanges in the middle of the step: a lower bound.
TEST(StepEvaluator, ModelIsABoundWhereExchangesBlock) {
  Bench bench("cnn");
  bench.profile();
  const auto evaluator = bench.evaluator();
  const plan::Problem problem = bench.problem();
  EXPECT_GT(evaluator->group_times(problem.devices).blocking, 0.0);
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 random(seed);
    const BatchSplit split = draw_split(random, problem);
    const double simulated = evaluator->step_time(make_split_plan(problem, split))->value;
    EXPECT_LE(model_step(*evaluator, split), simulated * (1 + 1e-4));
  }
}

TEST(StepEvaluator, AutoPlansRealModels) {
  for (const std::string model : {"mlp", "cnn", "gpt"}) {
    SCOPED_TRACE(model);
    Bench bench(model, 20e-6);
    bench.profile();
    const auto evaluator = bench.evaluator();
    const auto outcome = WaterFilling(evaluator->inputs()).plan(bench.problem());
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    ASSERT_TRUE(outcome->plan.has_value());
    EXPECT_LE(outcome->predicted_step, outcome->equal_split.step);
    EXPECT_LE(outcome->predicted_step, outcome->best_single.step);
    EXPECT_LE(outcome->lower_bound, outcome->predicted_step);
    EXPECT_GT(outcome->lower_bound.value, 0.5 * outcome->predicted_step.value);
  }
}

TEST(StepEvaluator, PeakIsThatOfTheLoweredProgram) {
  Bench bench("mlp");
  bench.profile();
  const auto evaluator = bench.evaluator();
  EXPECT_EQ(evaluator->peak_bytes(DeviceId(1), 24, Setting::kShared),
            program::find_memory_peak(bench.lower(24, 2)).total);
  EXPECT_EQ(evaluator->peak_bytes(DeviceId(1), 24, Setting::kAlone),
            program::find_memory_peak(bench.lower(24, 1)).total);
}

TEST(StepEvaluator, CurvesFollowSpeed) {
  Bench bench("mlp");
  bench.profile();
  const auto evaluator = bench.evaluator();
  const auto& fast = evaluator->curves(DeviceId(0), Setting::kShared);
  const auto& slow = evaluator->curves(DeviceId(1), Setting::kShared);
  EXPECT_NEAR(slow.end.at(24), 2 * fast.end.at(24), 1e-12);
  ASSERT_EQ(fast.ready.size(), fast.update.size());
  EXPECT_FALSE(fast.ready.empty());
  EXPECT_TRUE(evaluator->curves(DeviceId(0), Setting::kAlone).ready.empty());
}

TEST(LoadCosts, EmulatedDevicesGoAtTheirMeasuredPace) {
  Bench bench("mlp");
  bench.profile(1.25);
  const auto costs = bench.costs();
  ASSERT_TRUE(costs.has_value());
  EXPECT_NEAR(costs->devices.at("a:0").table_speed(), 0.8 / 1.25, 1e-9);
  EXPECT_NEAR(costs->devices.at("a:2").table_speed(), 0.2 / 1.25, 1e-9);
}

TEST(LoadCosts, NamesWhatWasNotProfiled) {
  Bench bench("mlp");
  const auto costs = bench.costs();
  ASSERT_FALSE(costs.has_value());
  EXPECT_EQ(costs.error().kind, ErrorKind::kUsage);
  EXPECT_EQ(costs.error().message,
            "model 'mlp' has no profile on cpu with threads = 1 and PyTorch 2.15, wanted up to "
            "batch 40; run `motley profile -m MODEL -C CLUSTER --global-batch 40`");
}

}  // namespace
}  // namespace motley::search
