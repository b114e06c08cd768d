#include "motley/cli/options/hap_models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/json.h"
#include "motley/cli/app.h"

namespace motley::cli {
namespace {

using ::testing::HasSubstr;

struct Answer {
  int code;
  std::string out, err;
};

Answer plan(std::vector<std::string> flags) {
  flags.insert(flags.begin(), "plan");
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const control::SystemClock clock;
  const int code = run_app(std::move(flags), {.clock = &clock});
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

std::string fault_of(std::vector<std::string> flags) {
  const Answer answer = plan(std::move(flags));
  EXPECT_EQ(answer.code, kUsage);
  return answer.err;
}

TEST(HapModels, ThePublishedAnswerIsGiven) {
  const Answer answer = plan({"--planner", "hap-released", "--hap-model", "bert12", "--json"});
  ASSERT_EQ(answer.code, kDone) << answer.err;
  const Json json = parse_json(answer.out, "stdout").value();
  EXPECT_EQ(json.at("planner"), "hap-released");
  EXPECT_EQ(json.at("model"), "bert12");
  EXPECT_EQ(json.at("cluster"), "v100-p100:8");
  EXPECT_EQ(json.at("outcome"), "feasible");
  EXPECT_NEAR(json.at("predicted_step_s").get<double>(), 1.456731, 5e-7);
  EXPECT_NEAR(json.at("lower_bound_s").get<double>(), 1.2147, 5e-5);
  EXPECT_NEAR(json.at("baselines").at("equal_split").at("step_s").get<double>(), 1.7421, 5e-5);
  EXPECT_TRUE(json.contains("elapsed_s"));
  // Two devices of 3858755112937 flops a second and six of 2149250936815.
  EXPECT_NEAR(json.at("shares").at("v100:0").get<double>(),
              3858755112937.0 / (2 * 3858755112937.0 + 6 * 2149250936815.0), 1e-12);
}

TEST(HapModels, PeopleReadStepBoundAndShares) {
  const Answer answer = plan({"--planner", "hap-described", "--hap-model", "vgg19"});
  ASSERT_EQ(answer.code, kDone) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("hap-described of vgg19 on v100-p100:8: step "));
  EXPECT_THAT(answer.out, HasSubstr("data parallel, even"));
  EXPECT_THAT(answer.out, HasSubstr("p100:0 to p100:5"));
}

TEST(HapModels, FlagsThatSayNothingHereAreRefused) {
  EXPECT_THAT(fault_of({"--planner", "hap-released"}),
              HasSubstr("which workload? give --hap-model, one of bert12 vit12 vgg19 bert-moe12"));
  EXPECT_THAT(fault_of({"--planner", "hap-released", "--hap-model", "brt12"}),
              HasSubstr("unknown workload 'brt12' of HAP, did you mean 'bert12'?"));
  EXPECT_THAT(fault_of({"--hap-model", "bert12"}),
              HasSubstr("--hap-model goes with --planner hap-released or hap-described; found "
                        "--planner auto"));
  EXPECT_THAT(fault_of({"--planner", "hap-released", "-m", "x.motley"}),
              HasSubstr("give --hap-model in place of -m, or --planner hap for an exported model"));
  EXPECT_THAT(fault_of({"--planner", "hap-released", "--hap-model", "bert12", "--global-batch=8"}),
              HasSubstr("HAP's workloads have 32 samples a device: leave --global-batch out"));
  EXPECT_THAT(fault_of({"--planner", "hap-released", "--hap-model", "bert12", "-o", "p.json"}),
              HasSubstr("run nowhere: leave -o out"));
  EXPECT_THAT(fault_of({"--planner", "hap-released", "--hap-model", "bert12", "--hap-cluster",
                        "equal:none"}),
              HasSubstr("HAP's cluster 'equal:none': no such number of devices"));
}

}  // namespace
}  // namespace motley::cli
