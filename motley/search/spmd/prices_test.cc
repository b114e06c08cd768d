#include "motley/search/spmd/prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "motley/cluster/kinds.h"
#include "motley/cost/operators/kind_times.h"
#include "motley/program/parts.h"
#include "motley/search/spmd/study.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

using graph::Form;
using graph::FormKind;
using graph::kPartialForm;
using graph::kWholeForm;

constexpr std::int64_t kWidth = 1024, kRowsOfBatch = 64;

/// The wide MLP on an rtx4090 and an rtx3090, with operator times from their specifications.
class SpmdPricesTest : public WideMlpTest {
 protected:
  SpmdPricesTest() {
    set_up(kWidth, "", kRowsOfBatch);
    question_ = {&model_.graph, &cluster_, &costs_, {}, kRowsOfBatch, problem_.devices, {}};
    auto study = SpmdStudy::make(question_);
    EXPECT_TRUE(study) << study.error().message;
    study_.emplace(*std::move(study));
  }

  SpmdPrices prices(const std::vector<double>& shares) {
    return study_->prices(study_->space(), problem_.devices, shares);
  }
  static double on(std::size_t device, double flops, double bytes) {
    const auto kind = cluster::find_kind(device == 0 ? "rtx4090" : "rtx3090");
    return cost::kind_seconds(*kind, DType::kF32, {flops, bytes, 1}).value;
  }
  graph::Strategy way(std::size_t op, const Form& operand) const {
    return *follow(study_->space().rules[op], 0, operand);
  }

  const Form by_samples_{FormKind::kSharded, 0, 1, kRowsOfBatch, 1};
  const Form by_columns_{FormKind::kSharded, 1, 1, kWidth, 1};
  SpmdQuestion question_;
  std::optional<SpmdStudy> study_;
};

// x [64, 1024] times a [1024, 1024]: shares 3 : 1 give 48 and 16 samples.
TEST_F(SpmdPricesTest, AnOperatorTakesWhatItsPartsWorkTakes) {
  SpmdPrices found = prices({3, 1});
  ASSERT_EQ(found.classes().size(), 2u);
  const double w = kWidth;
  const std::vector<double>& split = found.compute(OpId(0), way(0, by_samples_));
  for (const auto& [device, rows] : {std::pair{0u, 48.0}, {1u, 16.0}})
    EXPECT_NEAR(split[device], on(device, 2 * rows * w * w, 4 * (rows * w + w * w + rows * w)),
                1e-15);
  const std::vector<double>& whole =
      found.compute(OpId(0), whole_strategy(study_->space().rules[0]));
  for (const std::size_t device : {0u, 1u})
    EXPECT_NEAR(whole[device], on(device, 2 * 64 * w * w, 4 * (64 * w + w * w + 64 * w)), 1e-15);
  // Split by columns of x, 768 and 256: the result is a term of the whole.
  const std::vector<double>& terms = found.compute(OpId(0), way(0, by_columns_));
  EXPECT_NEAR(terms[1], on(1, 2 * 64 * 256 * w, 4 * (64 * 256 + 256 * w + 64 * w)), 1e-15);
  EXPECT_EQ(found.inner_exchanges(OpId(0), way(0, by_samples_)), 0);
}

TEST_F(SpmdPricesTest, ChangesOfFormCopyAndExchange) {
  SpmdPrices found = prices({3, 1});
  ExchangeTimes& exchanges = study_->exchanges(problem_.devices);
  const double all = 4.0 * kRowsOfBatch * kWidth;
  // Samples in parts become whole: each device reads and writes its part; native sends the largest
  // part of 3/4 to the other, grouped passes on 3/4 of all. Row parts are already in place.
  const ConversionTime& gathered = found.conversion(ValueId(4), by_samples_, kWholeForm);
  EXPECT_EQ(gathered.op, program::kAllGather);
  EXPECT_NEAR(gathered.before[0], on(0, 0, 2 * all * 3 / 4), 1e-15);
  EXPECT_NEAR(gathered.before[1], on(1, 0, 2 * all / 4), 1e-15);
  EXPECT_EQ(gathered.after, (std::vector<double>{0, 0}));
  EXPECT_NEAR(gathered.exchange,
              exchanges.fastest(program::kAllGather, {1.5 * all, 1.5 * all}).seconds, 1e-12);
  EXPECT_NEAR(gathered.copies(), std::max(gathered.before[0], gathered.before[1]), 1e-15);
  // Column parts are not: one more copy of everything.
  const ConversionTime& columns = found.conversion(ValueId(4), by_columns_, kWholeForm);
  EXPECT_NEAR(columns.after[1], on(1, 0, 2 * all), 1e-15);
  // Terms: a copy of everything, summed in place.
  const ConversionTime& summed = found.conversion(ValueId(4), kPartialForm, kWholeForm);
  EXPECT_EQ(summed.op, program::kAllReduce);
  EXPECT_NEAR(summed.before[0], on(0, 0, 2 * all), 1e-15);
  EXPECT_NEAR(summed.exchange, exchanges.fastest(program::kAllReduce, {all, all}).seconds, 1e-12);
  // Taking the own part of a whole value needs no exchange. Between dimensions the larger of a
  // device's parts before and after counts, 3/4.
  const ConversionTime& taken = found.conversion(ValueId(4), kWholeForm, by_samples_);
  EXPECT_EQ(taken.exchange, 0);
  EXPECT_NEAR(taken.after[1], on(1, 0, 2 * all / 4), 1e-15);
  const ConversionTime& turned = found.conversion(ValueId(4), by_samples_, by_columns_);
  EXPECT_EQ(turned.op, program::kAllToAll);
  EXPECT_NEAR(turned.exchange,
              exchanges.fastest(program::kAllToAll, {0.75 * all, 0.75 * all}).seconds, 1e-12);
  EXPECT_EQ(found.conversion(ValueId(4), by_samples_, by_samples_).exchange, 0);
}

// A gradient is exchanged in a bucket: at least its part, by bytes, of the bucket's time, or alone
// if it is larger. Packing reads and writes everything.
TEST_F(SpmdPricesTest, OfABucketAGradientTakesItsPart) {
  SpmdPrices found = prices({1, 1});
  ExchangeTimes& exchanges = study_->exchanges(problem_.devices);
  const double all = 4.0 * kRowsOfBatch * kWidth;
  for (const double bucket : {all / 2, 10 * all}) {
    SpmdPrices own = prices({1, 1});
    own.set_bucket(Bytes(static_cast<std::int64_t>(bucket)));
    const LeastChange& change = own.least_change(ValueId(4), kPartialForm, kWholeForm, true);
    const double most = std::max(bucket, all);
    EXPECT_NEAR(change.exchange, exchanges.at("motley::all_reduce", most) * all / most,
                1e-9 * change.exchange);
    ASSERT_EQ(change.whole.size(), found.classes().size());
    EXPECT_GT(change.whole[0], 0);
    EXPECT_TRUE(change.parts.empty());
  }
  const LeastChange& alone = found.least_change(ValueId(4), kPartialForm, kWholeForm, false);
  EXPECT_NEAR(alone.exchange, exchanges.at("motley::all_reduce", all), 1e-9 * alone.exchange);
  EXPECT_EQ(alone.whole[0], 0);  // a sum may overwrite its terms
}

// Momentum reads parameter, gradient and state and writes two of them; no launch of its own.
TEST_F(SpmdPricesTest, AnUpdateTakesItsBytes) {
  SpmdPrices found = prices({3, 1});
  const double all = 4.0 * kWidth * kWidth;
  const Form by_rows{FormKind::kSharded, 0, 1, kWidth, 1};
  const double launch = on(0, 0, 0);
  EXPECT_GT(launch, 0);
  const auto whole = found.update(ValueId(1), kWholeForm, 1);
  EXPECT_NEAR(whole[1], on(1, 3 * all, 6 * all) - launch, 1e-15);
  const auto parts = found.update(ValueId(1), by_rows, 1);
  EXPECT_NEAR(parts[0], on(0, 3 * all * 3 / 4, 6 * all * 3 / 4) - launch, 1e-15);
  EXPECT_NEAR(parts[1], on(1, 3 * all / 4, 6 * all / 4) - launch, 1e-15);
  EXPECT_GE(found.update(ValueId(1), by_rows, 0)[1], 0);
}

TEST_F(SpmdPricesTest, NoPartTakesLessThanIsSaid) {
  SpmdPrices even = prices({1, 1});
  const SpmdSpace& space = study_->space();
  for (const double share : {0.125, 0.25, 0.5, 0.75, 0.9375}) {
    SpmdPrices found = prices({share, 1 - share});
    for (std::size_t op = 0; op < space.ways.size(); ++op)
      for (const graph::Strategy& way : space.ways[op]) {
        const OpId id(static_cast<std::int64_t>(op));
        if (way.factor < 0) continue;
        const std::vector<PartTime>& least = even.part_times(id, way);
        const std::vector<double>& seconds = found.compute(id, way);
        for (std::size_t device = 0; device < 2; ++device) {
          const double part = device == 0 ? share : 1 - share;
          const PartTime& own = least[device];
          EXPECT_LE(std::max(own.least, own.fixed + part * (own.whole - own.fixed)),
                    seconds[device] * (1 + 1e-9))
              << "operator " << op << ", part " << part;
          EXPECT_LE(own.fixed, own.whole);
        }
      }
  }
}

// Samples split, weights whole: half of each operator; the loss and two gradients exchanged.
TEST_F(SpmdPricesTest, ATotalAddsUpAllOperatorsAndChanges) {
  const SpmdSpace& space = study_->space();
  SpmdPrices found = prices({1, 1});
  synth::Sharding sharding;
  sharding.devices = {"a:0", "b:0"};
  sharding.shares = {1, 1};
  sharding.batch = kRowsOfBatch;
  synth::spread_samples(model_.graph, sharding);
  const SpmdTotals totals = add_up(model_.graph, space, found, sharding);
  double compute = 0;
  for (std::size_t op = 0; op < space.ways.size(); ++op)
    compute += found.compute(OpId(static_cast<std::int64_t>(op)), sharding.ops[op])[1];
  const ConversionTime& gradient = found.conversion(ValueId(15), kPartialForm, kWholeForm);
  const ConversionTime& loss = found.conversion(ValueId(7), kPartialForm, kWholeForm);
  EXPECT_NEAR(totals.compute[1], compute + 2 * gradient.before[1] + loss.before[1], 1e-12);
  EXPECT_NEAR(totals.exchange, 2 * gradient.exchange + loss.exchange, 1e-12);
}

}  // namespace
}  // namespace motley::search
