#include "motley/search/spmd/price_sharding.h"

#include <gtest/gtest.h>

#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

using PriceShardingTest = WideMlpTest;

// Split by samples, which no micro-batch exchanges: three are the first, one in between, as all but
// two of eight are, and the last.
TEST_F(PriceShardingTest, ManyMicroBatchesAreOnALineThroughTwoAndThree) {
  set_up(256, "", 64);
  SpmdQuestion question{&model_.graph, &cluster_, &costs_, {}, 64, problem_.devices, {}};
  question.micro_batches = 8;
  auto study = SpmdStudy::make(question);
  ASSERT_TRUE(study) << study.error().message;
  ASSERT_EQ(study->accumulations().size(), 2u);
  const std::vector<double> shares = {3, 1};
  const SpmdChoices& choices = study->choices(shares);
  const std::vector<int> first(choices.problem.layout().domains.size(), 0);
  const synth::Sharding sharding = study->sharding(choices, first, problem_.devices, shares);
  const auto estimate = price_sharding(*study, problem_.devices, sharding);
  const auto full = price_in_full(*study, problem_.devices, sharding);
  ASSERT_TRUE(estimate && full);
  EXPECT_EQ(estimate->sharding.micro_batches, 8);
  EXPECT_NEAR(estimate->step.value, full->step.value, 0.001 * full->step.value);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_NEAR(estimate->compute[rank], full->compute[rank], 0.001 * full->compute[rank]);
    EXPECT_NEAR(static_cast<double>(estimate->peaks[rank].value),
                static_cast<double>(full->peaks[rank].value), 4096);
  }
}

}  // namespace
}  // namespace motley::search
