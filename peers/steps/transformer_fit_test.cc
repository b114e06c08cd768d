#include "peers/steps/transformer_fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace motley::peers {
namespace {

constexpr DevicePeaks kPeaks = {300e12, BytesPerSecond(2e12)};

/// Invented constants, different from the fit's start.
TransformerConstants truth() {
  return {{Seconds(60e-6), 200e12, BytesPerSecond(1.2e12), 0.3},
          Seconds(1e-3),
          Seconds(0.6e-3),
          BytesPerSecond(20e9),
          24,
          Seconds(1e-3)};
}

CollectiveCurves curves() {
  CollectiveCurves curves;
  curves.emplace(2, *CollectiveCurve::build({{Bytes(1'000'000), Seconds(50e-6)},
                                             {Bytes(1'000'000'000), Seconds(5e-3)}}));
  return curves;
}

/// A step of `truth` whose layers take `drag` times as long.
TransformerRun run_of(TransformerJob job, double drag = 1) {
  ShapeTimes times = *estimate_shape(shape_of(job), truth(), curves());
  times.layer_forward = times.layer_forward * drag;
  times.layer_backward = times.layer_backward * drag;
  return {job, estimate_step(job, times, truth(), curves())->total};
}

std::vector<TransformerJob> jobs(std::int64_t hidden) {
  std::vector<TransformerJob> jobs;
  for (const std::int64_t tensor : {1, 2}) {
    for (const std::int64_t pipeline : {1, 2, 4}) {
      for (const std::int64_t micro_batch : {1, 2, 4, 8}) {
        for (const std::int64_t count : {2, 8}) {
          jobs.push_back({.layers = 4 + 4 * (count / 8),
                          .hidden = hidden,
                          .heads = 16,
                          .sequence = 1024,
                          .vocabulary = 50257,
                          .tensor = tensor,
                          .pipeline = pipeline,
                          .micro_batch = micro_batch,
                          .global_batch = micro_batch * count});
        }
      }
    }
  }
  return jobs;
}

std::vector<TransformerRun> runs(std::int64_t hidden) {
  std::vector<TransformerRun> runs;
  for (const TransformerJob& job : jobs(hidden)) runs.push_back(run_of(job));
  return runs;
}

TEST(TransformerFit, PredictsAnotherWidth) {
  // The model made the runs, so its constants predict unseen ones; bad priors cost some percent.
  const auto model = fit_transformer_model(runs(1024), curves(), kPeaks);
  ASSERT_TRUE(model) << model.error().message;
  for (const TransformerRun& run : runs(1536)) {
    const auto step = estimate_step(*model, run.job);
    ASSERT_TRUE(step);
    EXPECT_NEAR(step->total / run.measured, 1, 0.05);
    EXPECT_FALSE(model->corrections.contains(shape_of(run.job)));
  }
}

TEST(TransformerFit, KeepsWhatWasMeasuredOfAShape) {
  // Layers of one shape, 0.8 times as fast as modelled: known after two of its runs.
  std::vector<TransformerRun> fitted = runs(1024);
  TransformerJob odd = jobs(1024)[0];
  odd.micro_batch = 3;
  for (const std::int64_t layers : {4, 24}) {
    odd.layers = layers;
    odd.global_batch = 6;
    fitted.push_back(run_of(odd, 1 / 0.8));
  }
  odd.layers = 12;
  odd.global_batch = 24;
  const TransformerRun unseen = run_of(odd, 1 / 0.8);
  const auto model = fit_transformer_model(fitted, curves(), kPeaks);
  ASSERT_TRUE(model) << model.error().message;
  EXPECT_NEAR(model->corrections.at(shape_of(odd)).layer, 1.25, 0.08);
  EXPECT_NEAR(estimate_step(*model, odd)->total / unseen.measured, 1, 0.02);
}

TEST(TransformerFit, IntervalsAreWiderForNewShapes) {
  // Each shape has its own drag, up to 20 % off, known only for shapes in the fit.
  std::vector<TransformerRun> fitted;
  std::size_t i = 0;
  for (const std::int64_t hidden : {1024, 2048}) {
    for (const TransformerJob& job : jobs(hidden)) {
      const double angle = static_cast<double>(job.micro_batch + 3 * job.tensor + hidden / 256);
      fitted.push_back(run_of(job, 1 + 0.2 * std::sin(angle)));
      ++i;
    }
  }
  const auto model = fit_transformer_model(fitted, curves(), kPeaks);
  const auto residuals = cross_validate(fitted, curves(), kPeaks);
  ASSERT_TRUE(model && residuals);
  // Both parts predict every run; a run is new at least where its whole shape was left out.
  EXPECT_EQ(residuals->known_shape.size() + residuals->new_shape.size(), 2 * i);
  EXPECT_GE(residuals->new_shape.size(), i);

  const TransformerJob known = jobs(1024)[0];
  TransformerJob fresh = known;
  fresh.micro_batch = 16;
  fresh.global_batch = 32;
  const auto near = estimate_interval(*model, known, *residuals);
  const auto far = estimate_interval(*model, fresh, *residuals);
  ASSERT_TRUE(near && far);
  EXPECT_LT(near->low, near->value);
  EXPECT_LT(near->value, near->high);
  EXPECT_GT((far->high - far->low) / far->value, 2 * (near->high - near->low) / near->value);
}

TEST(TransformerFit, NamesTheRunThatIsWrong) {
  std::vector<TransformerRun> wrong = runs(1024);
  wrong[3].job.heads = 7;
  EXPECT_EQ(fit_transformer_model(wrong, curves(), kPeaks).error().message,
            "run 3: hidden size 1024 does not divide by heads 7");
  wrong = runs(1024);
  wrong[2].job.tensor = 4;
  EXPECT_EQ(fit_transformer_model(wrong, curves(), kPeaks).error().message,
            "run 2: no measured all-reduce among 4 ranks");
  EXPECT_EQ(fit_transformer_model({}, curves(), kPeaks).error().message, "a fit without targets");
  const std::vector<TransformerRun> one = {runs(1024)[0]};
  EXPECT_EQ(cross_validate(one, curves(), kPeaks).error().message,
            "runs of 1 layouts and 1 shapes, wanted 5 or more of both to judge a fit");
}

}  // namespace
}  // namespace motley::peers
