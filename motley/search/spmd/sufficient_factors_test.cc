#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "motley/search/spmd/study.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

/// Sufficient factors: every device makes a whole weight gradient from gathered rows.
class SufficientFactorsTest : public WideMlpTest {
 protected:
  static constexpr std::size_t kGradients[] = {6, 11};  // operators that make weight gradients

  /// Returns the best ways if all but weight gradients is split by samples.
  synth::Sharding best_of_data_parallelism(std::int64_t batch) {
    set_up(1024, "", batch);
    const SpmdQuestion question{&model_.graph, &cluster_, &costs_, {}, batch, problem_.devices};
    auto study = SpmdStudy::make(question);
    EXPECT_TRUE(study) << study.error().message;
    const std::vector<double> shares = {1, 1};
    const SpmdChoices& choices = study->choices(shares);
    SpmdPrices prices = study->prices(choices.space, problem_.devices, shares);
    TableCosts costs = choices.problem.costs(prices, {});
    for (const std::size_t op : {0, 1, 2, 4, 8, 9})
      choices.problem.restrict(
          costs, OpId(static_cast<std::int64_t>(op)), [](const graph::Strategy& way) {
            return way.results[0].kind == graph::FormKind::kSharded && way.results[0].dim == 0;
          });
    const TableSolution solution = choices.problem.solve(costs);
    EXPECT_EQ(solution.relaxed, 0U);
    synth::Sharding sharding = study->sharding(choices, solution.choice, problem_.devices, shares);
    exchange_ = add_up(model_.graph, choices.space, prices, sharding).exchange;
    return sharding;
  }

  double exchange_ = 0;  // seconds
};

TEST_F(SufficientFactorsTest, AreGatheredWhereRowsAreFew) {
  const synth::Sharding few = best_of_data_parallelism(4);
  const double gathered = exchange_;
  for (const std::size_t op : kGradients)
    for (const graph::Form& operand : few.ops[op].operands)
      EXPECT_EQ(operand, graph::kWholeForm) << op;
  const synth::Sharding many = best_of_data_parallelism(4096);
  for (const std::size_t op : kGradients)
    EXPECT_EQ(many.ops[op].results[0], graph::kPartialForm) << op;
  EXPECT_LT(gathered, exchange_ / 10);  // the weights and their gradients are the same
}

}  // namespace
}  // namespace motley::search
