#include "motley/control/evaluating.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/cost/profile_cost.h"
#include "motley/program/memory.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;

/// The MLP's forward pass, of three samples or more, with an accuracy.
constexpr const char* kEvaluation = R"(motley.graph/1
name "mlp"
size batch 3 4096
input %0: f32[batch, 12] "x"
input %1: i64[batch] "y"
param %2: f32[32, 12] "net.0.weight"
param %3: f32[32] "net.0.bias"
param %4: f32[5, 32] "net.2.weight"
param %5: f32[5] "net.2.bias"
op %6: f32[12, 32] = aten::t(%2) fwd "net.0" seq 0
op %7: f32[batch, 32] = aten::addmm(%3, %0, %6, 1, 1) fwd "net.0" seq 1
op %8: f32[batch, 32] = aten::relu(%7) fwd "net.1" seq 2
op %9: f32[32, 5] = aten::t(%4) fwd "net.2" seq 3
op %10: f32[batch, 5] = aten::addmm(%5, %8, %9, 1, 1) fwd "net.2" seq 4
op %11: f32[batch, 5] = aten::_log_softmax(%10, 1, false) fwd "" seq 5
op %12: f32[], %13: f32[] = aten::nll_loss_forward(%11, %1, none, 1, -100) fwd "" seq 6
output loss %12
output metric %13 "accuracy"
)";

class EvaluatingTest : public ::testing::Test {
 protected:
  /// The MLP on one CPU, eight samples a step.
  EvaluatingTest() {
    graph::Model model = *inputs_.model;
    model.evaluation =
        std::make_shared<const graph::Graph>(graph::parse_graph(kEvaluation, "evaluation").value());
    inputs_.model = std::make_shared<const graph::Model>(std::move(model));
    const plan::Plan plan{.model_hash = inputs_.model->hash,
                          .cluster_hash = cluster::cluster_hash(inputs_.cluster),
                          .global_batch = 8,
                          .replicas = plan::make_replicas({DeviceId(0)}, {8})};
    planned_ = lower_plan(inputs_, plan).value();
  }
  Result<PreparedEvaluation> prepare(std::int64_t samples) const {
    return prepare_evaluation(inputs_, planned_, choices_, samples);
  }
  /// Samples of the programs' batches.
  std::vector<std::int64_t> batches(std::int64_t samples) const {
    std::vector<std::int64_t> batches;
    for (const auto& program : prepare(samples).value().programs)
      batches.push_back(program.global_batch);
    return batches;
  }

  Inputs inputs_ = small_inputs(kTwoCpus, 8);
  Planned planned_;
  EvaluationChoices choices_{.data = {.path = "d.npz"}};
};

TEST_F(EvaluatingTest, WhatIsLeftJoinsTheLastBatchWhereItIsTooFew) {
  EXPECT_THAT(batches(16), ElementsAre(8));
  EXPECT_THAT(batches(20), ElementsAre(8, 4));
  EXPECT_THAT(batches(17), ElementsAre(8, 9));
  EXPECT_EQ(prepare(2).error().message, "d.npz: found 2 samples, wanted 3 or more");
}

TEST_F(EvaluatingTest, EveryBatchFitsTheMemory) {
  // The device has what eight samples need, but not nine: of 17 samples 4, 4, 4 and 5 fit.
  const auto eight = prepare(8).value().programs[0].devices[0];
  cluster::Device& device = inputs_.cluster.devices[0];
  device.memory = cost::with_framework(device, program::find_memory_peak(eight).total);
  EXPECT_THAT(batches(16), ElementsAre(8));
  EXPECT_THAT(batches(17), ElementsAre(4, 5));
}

TEST_F(EvaluatingTest, WholeMessages) {
  choices_.watch = "acuracy";
  EXPECT_EQ(prepare(8).error().message,
            "--best: the model has no metric 'acuracy', only loss, accuracy, did you mean "
            "'accuracy'?");
}

}  // namespace
}  // namespace motley::control
