#include "motley/plan/given_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::plan {
namespace {

std::string stages_fault(const std::string& text) {
  const auto parsed = parse_given_stages(text, "s.json");
  return parsed ? "" : parsed.error().message;
}

TEST(GivenStages, AreReadAsPlansSayThem) {
  const auto replicas = parse_given_stages(R"({"planner": "stages", "stages": [
    {"replica": 0, "stage": 0, "devices": ["a:0", "a:1"], "layers": "emb to h.3", "samples": 24,
     "micro_batches": 4},
    {"replica": 0, "stage": 1, "devices": ["b:0"], "layers": [4, 9], "samples": 24,
     "micro_batches": 4, "recompute": true},
    {"replica": 1, "stage": 0, "devices": ["c:0"], "layers": [0, 9], "samples": 8,
     "micro_batches": 1}]})",
                                           "s.json");
  ASSERT_TRUE(replicas) << replicas.error().message;
  const std::vector<GivenReplica> wanted = {
      {24,
       4,
       {{{"a:0", "a:1"}, "emb to h.3"},
        {{"b:0"}, std::pair<std::size_t, std::size_t>(4, 9), true}}},
      {8, 1, {{{"c:0"}, std::pair<std::size_t, std::size_t>(0, 9)}}}};
  EXPECT_EQ(*replicas, wanted);
}

TEST(GivenStages, OfOneReplicaNeedLittle) {
  const auto replicas =
      parse_given_stages(R"([{"devices": ["a:0"], "layers": [0, 1], "micro_batches": 3},
                             {"devices": ["a:1"], "layers": [2, 4]}])",
                         "s.json");
  ASSERT_TRUE(replicas) << replicas.error().message;
  ASSERT_EQ(replicas->size(), 1u);
  EXPECT_EQ(replicas->front().micro_batches, 3);
  EXPECT_EQ(replicas->front().samples, 0);
  EXPECT_EQ(replicas->front().stages.size(), 2u);
}

TEST(GivenStages, SayWhatIsWrong) {
  EXPECT_EQ(stages_fault("{}"), "s.json: wanted a list of stages, as motley plan --json has it");
  EXPECT_EQ(stages_fault(R"([{"devices": [], "layers": [0, 1]}])"),
            "s.json: stages[0]: devices: found none");
  EXPECT_EQ(stages_fault(R"([{"devices": ["a:0"], "layers": [0]}])"),
            "s.json: stages[0]: layers: found [0], wanted names (\"emb to h.3\") or the numbers of "
            "the first and the last ([0, 3])");
  EXPECT_EQ(stages_fault(R"([{"devices": ["a:0"], "layers": [0, 1], "replica": 1}])"),
            "s.json: stages[0]: replica 1, wanted them in order from 0");
  EXPECT_EQ(stages_fault(R"([{"devices": ["a:0"], "layers": [0, 1], "stage": 1}])"),
            "s.json: stages[0]: stage 1, wanted 0");
  EXPECT_EQ(stages_fault(R"([{"devices": ["a:0"], "layers": [0, 1], "samples": 4},
                      {"devices": ["a:1"], "layers": [2, 3], "samples": 5}])"),
            "s.json: stages[1]: samples: found 5, wanted 4 as the replica's first");
  EXPECT_THAT(stages_fault(R"([{"devices": ["a:0"], "layers": [0, 1], "recomputes": true}])"),
              testing::HasSubstr("recomputes"));
}

}  // namespace
}  // namespace motley::plan
