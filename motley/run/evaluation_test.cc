#include "motley/run/evaluation.h"

#include <gmock/gmock.h>

#include <cmath>

#include "motley/base/json_fields.h"

namespace motley::run {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(EvaluationSums, SumsAreDividedByCountsAndNumbersWeighedBySamples) {
  EvaluationSums sums({"accuracy.0", "accuracy.1", "margin"});
  sums.add(1.0, {3, 4, 0.5}, 4);
  sums.add(4.0, {1, 2, 2.0}, 2);
  const Evaluation evaluation = sums.result().value();
  EXPECT_DOUBLE_EQ(evaluation.loss, 2.0);  // (4 * 1 + 2 * 4) / 6
  // (3 + 1) / (4 + 2); (4 * 0.5 + 2 * 2) / 6
  EXPECT_THAT(evaluation.metrics, ElementsAre(Pair("accuracy", 4.0 / 6.0), Pair("margin", 1.0)));
  EXPECT_THAT(sums.names(), ElementsAre("accuracy", "margin"));
  EXPECT_EQ(evaluation.find("margin"), 1.0);
  EXPECT_EQ(evaluation.find("loss"), 2.0);
  EXPECT_EQ(evaluation.find("none"), std::nullopt);
}

TEST(EvaluationSums, APerplexityIsAPower) {
  EvaluationSums sums({"perplexity.0", "perplexity.1"});
  sums.add(1, {6, 2}, 1);
  EXPECT_DOUBLE_EQ(sums.result()->metrics[0].second, std::exp(3.0));
}

TEST(EvaluationSums, ANumberAloneThatEndsSoIsNoSum) {
  EvaluationSums sums({"hidden.0"});
  sums.add(1, {5}, 2);
  EXPECT_THAT(sums.result()->metrics, ElementsAre(Pair("hidden.0", 5.0)));
}

std::string metric_fault(const std::vector<std::string>& outputs, double loss,
                         std::vector<double> values) {
  EvaluationSums sums(outputs);
  sums.add(loss, values, 1);
  const auto result = sums.result();
  return result ? "" : result.error().message;
}

TEST(EvaluationSums, WholeMessages) {
  EXPECT_EQ(metric_fault({"accuracy.0", "accuracy.1"}, 1, {0, 0}),
            "metric 'accuracy': its count is 0 over all of the evaluation's samples; return (sum, "
            "count) with what was counted");
  EXPECT_EQ(metric_fault({}, std::nan(""), {}), "the loss is nan over the evaluation's samples");
  EXPECT_EQ(metric_fault({"f"}, 1, {HUGE_VAL}),
            "metric 'f' is infinite over the evaluation's samples");
}

TEST(ParseWatch, KnowsWhatIsBetter) {
  EXPECT_EQ(parse_watch("loss").value(), (Watch{"loss", false}));
  EXPECT_EQ(parse_watch("accuracy").value(), (Watch{"accuracy", true}));
  EXPECT_EQ(parse_watch("perplexity").value(), (Watch{"perplexity", false}));
  EXPECT_EQ(parse_watch("loss:max").value(), (Watch{"loss", true}));
  EXPECT_EQ(parse_watch("f1:best").error().message,
            "--best: found 'f1:best', wanted a metric such as accuracy, accuracy:max or loss:min");
}

TEST(UpdateBest, CountsEvaluationsSinceTheBest) {
  std::optional<Best> best;
  const Watch watch{"accuracy", true};
  EXPECT_TRUE(update_best(watch, 0.5, 10, best));
  EXPECT_FALSE(update_best(watch, 0.5, 20, best));  // equal is not better
  EXPECT_FALSE(update_best(watch, 0.4, 30, best));
  EXPECT_EQ(best, (Best{0.5, 10, 2}));
  EXPECT_TRUE(update_best(watch, 0.6, 40, best));
  EXPECT_EQ(best, (Best{0.6, 40, 0}));
}

TEST(EvaluationJob, JsonRoundTrip) {
  const EvaluationJob job{.data = {.path = "d.npz", .begin = 5},
                          .every = 10,
                          .programs = {"a.txt", "b.txt"},
                          .outputs = {"accuracy.0", "accuracy.1"},
                          .watch = {"accuracy", true},
                          .patience = 3};
  const auto parsed = fields_from_json<EvaluationJob>(fields_to_json(job), "e");
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(*parsed, job);
}

TEST(EvaluationJob, WantsListsOfTexts) {
  Json json = fields_to_json(EvaluationJob{.data = {.path = "d.npz"}, .programs = {"a.txt"}});
  json["outputs"] = nullptr;
  EXPECT_EQ(fields_from_json<EvaluationJob>(json, "e").error().message,
            "e: key 'outputs': found null, wanted a list of strings");
}

}  // namespace
}  // namespace motley::run
