#include "motley/control/training/evaluating.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/cost/profile_cost.h"
#include "motley/program/memory.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;

class EvaluatingTest : public ::testing::Test {
 protected:
  /// The MLP on one CPU with eight samples a step; it evaluates three or more.
  EvaluatingTest() {
    graph::Model model = *inputs_.model;
    std::string text = mlp_evaluation_text();
    text.replace(text.find("batch 1 "), 8, "batch 3 ");
    model.evaluation =
        std::make_shared<const graph::Graph>(graph::parse_graph(text, "evaluation").value());
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
  // The device holds eight samples but not nine; 17 samples fit as 4, 4, 4 and 5.
  const auto eight = prepare(8).value().programs[0].devices[0];
  cluster::Device& device = inputs_.cluster.devices[0];
  device.memory = cost::with_framework(device, program::find_memory_peak(eight).total);
  EXPECT_THAT(batches(16), ElementsAre(8));
  EXPECT_THAT(batches(17), ElementsAre(4, 5));
}

TEST_F(EvaluatingTest, WholeMessages) {
  choices_.watch = "activty";
  EXPECT_EQ(prepare(8).error().message,
            "--best: the model has no metric 'activty', only loss, activity, did you mean "
            "'activity'?");
}

}  // namespace
}  // namespace motley::control
