#include "peers/hap/planners.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "peers/hap/published_models.h"

namespace motley::peers {
namespace {

HapAnswer ask(std::string_view planner, const std::string& model, const std::string& where) {
  const auto cluster = make_named_cluster(where).value();
  const auto graph =
      make_named_model(model, static_cast<std::int64_t>(cluster.devices.size())).value();
  const auto answer = ask_hap(planner, graph, cluster);
  EXPECT_TRUE(answer) << answer.error().message;
  return *answer;
}

TEST(HapPlanners, ReleasedGivesThePublishedCosts) {
  // As published for the released program; hap_test.cc has all of them.
  const HapAnswer bert = ask("hap-released", "bert12", "v100-p100:8");
  EXPECT_NEAR(bert.plan.program.seconds, 1.456731, 5e-7);
  EXPECT_NEAR(bert.lower_bound, 1.2147, 5e-5);
  EXPECT_NEAR(bert.equal_split, 1.7421, 5e-5);
  EXPECT_NEAR(bert.proportional_split, 1.5006, 5e-5);
  EXPECT_THAT(bert.why, ::testing::Contains("shares in proportion to speed"));
  const HapAnswer vgg = ask("hap-released", "vgg19", "v100-p100:8");
  EXPECT_NEAR(vgg.plan.program.seconds, 0.051911, 5e-7);
  EXPECT_THAT(vgg.why,
              ::testing::Contains("even shares: larger shards of the fast devices would pad "
                                  "those of all the others"));
  EXPECT_NEAR(ask("hap-released", "bert2", "equal:8").plan.program.seconds, 0.228772, 5e-7);
}

TEST(HapPlanners, AnswersLieBetweenBoundAndDataParallelism) {
  for (const std::string& planner : hap_planner_names()) {
    for (const std::string& model : hap_model_names()) {
      SCOPED_TRACE(planner + " " + model);
      const HapAnswer answer = ask(planner, model, "v100-p100:8");
      const double rounding = 1 - 1e-12;  // sums in another order
      EXPECT_GE(answer.plan.program.seconds, answer.lower_bound * rounding);
      EXPECT_LE(answer.plan.program.seconds * rounding, answer.equal_split);
      EXPECT_LE(answer.plan.program.seconds * rounding, answer.proportional_split);
    }
  }
}

TEST(HapPlanners, DescribedPaysForBytes) {
  // Repaired units: four times the released planner's communication, less the savings of sufficient
  // factors and grouped gathers. Pure data parallelism has neither.
  const HapAnswer released = ask("hap-released", "bert2", "equal:8");
  const HapAnswer described = ask("hap-described", "bert2", "equal:8");
  const double moved = released.equal_split - released.lower_bound;
  EXPECT_NEAR(described.equal_split - described.lower_bound, 4 * moved, 1e-9);
}

TEST(HapPlanners, UnknownWorkloadsAreAnswered) {
  const std::string names =
      "; its workloads: bert12 vit12 vgg19 bert-moe12; bert, vit and bert-moe with 1 to 1000 "
      "layers";
  const auto fault = [](std::string_view name) { return make_named_model(name, 8).error(); };
  EXPECT_EQ(fault("brt12").code, "peers.hap-model");
  EXPECT_EQ(fault("brt12").message,
            "unknown workload 'brt12' of HAP, did you mean 'bert12'?" + names);
  EXPECT_EQ(fault("resnet").message, "unknown workload 'resnet' of HAP" + names);
  EXPECT_EQ(fault("vgg16").message,
            "unknown workload 'vgg16' of HAP, did you mean 'vgg19'?" + names);
  EXPECT_FALSE(make_named_model("bert", 8));
  EXPECT_FALSE(make_named_model("bert0", 8));
  EXPECT_FALSE(make_named_model("bert1001", 8));
  EXPECT_FALSE(make_named_model("", 8));
  EXPECT_FALSE(make_named_model("12", 8));
}

}  // namespace
}  // namespace motley::peers
