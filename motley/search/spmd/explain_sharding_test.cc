#include "motley/search/spmd/explain_sharding.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/text.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// The wide MLP of 1024 columns, i.e. 4 MiB per weight, and 64 samples.
class ExplainShardingTest : public WideMlpTest {
 protected:
  void ask(std::int64_t micro_batches = 1) {
    set_up(1024, "", 64 * micro_batches);
    question_ = {&model_.graph, &cluster_, &costs_, {}, 64 * micro_batches, problem_.devices, {}};
    question_.micro_batches = micro_batches;
    auto study = SpmdStudy::make(question_);
    ASSERT_TRUE(study) << study.error().message;
    study_.emplace(*std::move(study));
    plan_.devices = problem_.devices;
    plan_.sharding = {};
    plan_.sharding.devices = {"a:0", "b:0"};
    plan_.sharding.shares = {3, 1};
    plan_.sharding.batch = 64;
    plan_.sharding.micro_batches = micro_batches;
    synth::spread_samples(model_.graph, plan_.sharding);
  }
  std::vector<std::string> lines() { return explain_sharding(*study_, plan_); }
  std::string line_of(const std::string& layer) {
    for (const std::string& line : lines())
      if (line.starts_with(layer)) return line;
    return "";
  }

  SpmdQuestion question_;
  std::optional<SpmdStudy> study_;
  SpmdPlan plan_;
};

// A layer exchanges its gradient. Only `whole` has a cost: it is already split by samples.
TEST_F(ExplainShardingTest, OfDataParallelism) {
  ask();
  SpmdPrices prices = study_->prices(study_->space(), problem_.devices, {3, 1});
  const double sum =
      prices.conversion(ValueId(15), graph::kPartialForm, graph::kWholeForm).exchange;
  EXPECT_EQ(lines()[0], "samples 48:16 on a:0, b:0");
  const std::string wanted = fmt::format(
      "split by samples (100 % of its work); parameters kept: 4 MiB whole; exchanges 1 all-reduce "
      "of gradients (4 MiB, {}); instead whole ",
      format_seconds(Seconds(sum)));
  const std::string line = line_of("first and 1 other alike: ");  // the second
  EXPECT_THAT(line, StartsWith("first and 1 other alike: " + wanted));
  EXPECT_THAT(line, Not(HasSubstr("instead by samples")));
}

// Split by columns of the weight: shares 3 : 1 have 768 and 256, also of the result.
TEST_F(ExplainShardingTest, OfColumns) {
  ask();
  const auto& rules = study_->space().rules;
  const graph::Form columns{graph::FormKind::kSharded, 1, 1, 1024, 1};
  plan_.sharding.ops[0] = *follow(rules[0], 1, columns);
  plan_.sharding.sources[1] = columns;
  const std::string line = line_of("first: ");
  EXPECT_THAT(line, HasSubstr("parts 768:256 of 1024 ("));
  EXPECT_THAT(line, HasSubstr("4 MiB in parts"));
  EXPECT_THAT(line, HasSubstr("all-to-all (256 KiB, "));  // its result, by samples again
  EXPECT_THAT(line, HasSubstr("reduce-scatter of gradients (4 MiB, "));
  EXPECT_THAT(line, HasSubstr("; instead by samples "));
  EXPECT_THAT(line, HasSubstr(", whole "));
}

// Split by rows of the weight: sums over 768 and 256 of the 1024 columns of x.
TEST_F(ExplainShardingTest, OfSums) {
  ask();
  plan_.sharding.ops[0] =
      *follow(study_->space().rules[0], 0, {graph::FormKind::kSharded, 1, 1, 1024, 1});
  EXPECT_THAT(line_of("first: "), HasSubstr("sums over 768:256 of 1024 ("));
}

TEST_F(ExplainShardingTest, OfWhatRunsWhole) {
  ask();
  for (std::size_t op = 0; op < plan_.sharding.ops.size(); ++op)
    plan_.sharding.ops[op] = whole_strategy(study_->space().rules[op]);
  EXPECT_EQ(line_of("second: "),
            "second: run whole on each device; parameters kept: 4 MiB whole; exchanges nothing");
  // The first layer needs all samples, 256 KiB in parts.
  EXPECT_THAT(line_of("first: "), HasSubstr("; exchanges 1 all-gather (256 KiB, "));
}

TEST_F(ExplainShardingTest, OfMicroBatches) {
  ask(2);
  EXPECT_EQ(lines()[0],
            "samples 48:16 on a:0, b:0, in each of 2 micro-batches, for one of which is what "
            "follows");
}

}  // namespace
}  // namespace motley::search
