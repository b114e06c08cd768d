#include "motley/report/plan_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "motley/graph/layer_chain.h"
#include "motley/testing/golden.h"

namespace motley::report {
namespace {

cluster::Cluster two_hosts() {
  cluster::Cluster cluster;
  cluster.name = "lab";
  for (const char* name : {"a", "b"}) {
    cluster.nodes.push_back({name});
    cluster::Device device;
    device.node = NodeId(static_cast<std::int64_t>(cluster.nodes.size()) - 1);
    device.name = std::string(name) + ":0";
    device.kind = "cpu";
    cluster.devices.push_back(device);
  }
  return cluster;
}

/// One replica in two stages: the layers before `cut`, and the others.
plan::Plan two_stages(const graph::Graph& graph, std::size_t cut) {
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  plan::Replica replica{12, {}, 3};
  for (const std::int64_t device : {0, 1}) {
    plan::Region region{{DeviceId(device)}, {1.0}};
    for (std::size_t i = 0; i < chain.of_op.size(); ++i) {
      if ((chain.of_op[i] < cut) != (device == 0)) continue;
      const auto op = static_cast<std::int64_t>(i);
      region.covers.push_back({op, op + 1});
    }
    replica.regions.push_back(std::move(region));
  }
  plan::Plan plan;
  plan.global_batch = 12;
  plan.replicas = {replica};
  return plan;
}

// net.0 to net.5, three per stage, all repeated.
TEST(ExportPlan, SaysStagesInOtherWords) {
  const graph::Graph graph = synth::read_graph("mlp");
  const plan::Plan plan = two_stages(graph, 4);
  const cluster::Cluster cluster = two_hosts();
  EXPECT_EQ(export_plan("megatron", plan, graph, cluster)->text,
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout \"tttt|tt\" "
            "--micro-batch-size 4 --global-batch-size 12\n");
  EXPECT_THAT(export_plan("torchtitan", plan, graph, cluster)->text,
              ::testing::HasSubstr("module_fqns_per_model_part = "
                                   "[[\"net.0\",\"net.1\",\"net.2\",\"net.3\"],"
                                   "[\"net.4\",\"net.5\"]]\n"));
  EXPECT_THAT(export_plan("deepspeed", plan, graph, cluster)->text,
              ::testing::StartsWith("a slots=1\nb slots=1\n"));
  EXPECT_THAT(export_plan("torchrun", plan, graph, cluster)->text,
              ::testing::HasSubstr("--nnodes 2 --node-rank 1 --nproc-per-node 1 --master-addr a"));
}

/// One replica in stages that end before the layers `cuts` and at the last; stage s is on on[s].
plan::Plan stages_on(const graph::Graph& graph, const std::vector<std::size_t>& cuts,
                     const std::vector<std::int64_t>& on) {
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  plan::Plan plan = two_stages(graph, 4);
  plan::Replica& replica = plan.replicas[0];
  replica.regions.clear();
  for (std::size_t s = 0; s < on.size(); ++s) {
    plan::Region region{{DeviceId(on[s])}, {1.0}};
    for (std::size_t i = 0; i < chain.of_op.size(); ++i) {
      const auto stage = static_cast<std::size_t>(
          std::upper_bound(cuts.begin(), cuts.end(), chain.of_op[i]) - cuts.begin());
      const auto op = static_cast<std::int64_t>(i);
      if (stage == s) region.covers.push_back({op, op + 1});
    }
    replica.regions.push_back(std::move(region));
  }
  return plan;
}

// Two devices round after round give virtual stages. There and back again is refused.
TEST(ExportPlan, SaysInterleavedStages) {
  const graph::Graph graph = synth::read_graph("mlp");
  const cluster::Cluster cluster = two_hosts();
  const plan::Plan rounds = stages_on(graph, {1, 3, 5}, {0, 1, 0, 1});
  const auto megatron = export_plan("megatron", rounds, graph, cluster);
  ASSERT_TRUE(megatron) << megatron.error().message;
  EXPECT_EQ(megatron->text,
            "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout \"t|tt|tt|t\" "
            "--micro-batch-size 4 --global-batch-size 12\n");
  EXPECT_THAT(megatron->notes,
              ::testing::ElementsAre("3 micro-batches; with virtual stages that tool wants a "
                                     "multiple of the 2 ranks of a pipeline"));
  EXPECT_THAT(export_plan("torchtitan", rounds, graph, cluster)->text,
              ::testing::HasSubstr("pipeline_parallel_degree = 2\n"
                                   "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"));
  const plan::Plan wave = stages_on(graph, {1, 3}, {0, 1, 0});
  for (const char* tool : {"megatron", "torchtitan"})
    EXPECT_EQ(export_plan(tool, wave, graph, cluster).error().message,
              "replica 0: devices have several stages, not round after round; this tool has no "
              "words for that")
        << tool;
}

TEST(ExportPlan, NotesWhatIsDoneAgain) {
  const graph::Graph graph = synth::read_graph("mlp");
  plan::Plan plan = two_stages(graph, 4);
  EXPECT_TRUE(export_plan("megatron", plan, graph, two_hosts())->notes.empty());
  plan.replicas[0].regions[1].recomputes = {{2, 4}, {6, 7}};
  for (const std::string& tool : plan_tools())
    EXPECT_THAT(export_plan(tool, plan, graph, two_hosts())->notes,
                ::testing::ElementsAre(::testing::HasSubstr(
                    "replica 0, region 1 does 3 operators of the forward pass again")))
        << tool;
}

TEST(ExportPlan, NotesWhatIsGatheredAgain) {
  const graph::Graph graph = synth::read_graph("mlp");
  plan::Plan plan = two_stages(graph, 4);
  plan.replicas[0].regions[0].parameters = {{"w", {}, true}, {"v", {}, false}};
  EXPECT_THAT(export_plan("megatron", plan, graph, two_hosts())->notes,
              ::testing::ElementsAre(::testing::HasSubstr(
                  "replica 0, region 0 gathers 1 parameters again for each pass")));
}

TEST(ExportPlan, RefusesWhatTheToolCannotSay) {
  const graph::Graph graph = synth::read_graph("mlp");
  plan::Plan plan = two_stages(graph, 4);
  plan.replicas.push_back(two_stages(graph, 2).replicas[0]);
  const cluster::Cluster cluster = two_hosts();
  EXPECT_EQ(export_plan("torchtitan", plan, graph, cluster).error().message,
            "replica 1 is cut into other stages than replica 0; this tool cuts all alike");
  EXPECT_EQ(export_plan("megatrom", plan, graph, cluster).error().message,
            "--to: found 'megatrom', wanted one of megatron torchtitan deepspeed torchrun, did you "
            "mean 'megatron'?");
}

}  // namespace
}  // namespace motley::report
