#include "peers/steps/transformer_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "motley/base/check.h"
#include "motley/base/random.h"
#include "peers/steps/log_fit.h"

namespace motley::peers {
namespace {

constexpr double kAnalyticError = 0.05, kCorrectedError = 0.02;
constexpr double kCorrectionSpread = 0.15;
constexpr std::size_t kFolds = 5;
constexpr std::uint64_t kFoldSeed = 1;

/// Lists the priors in the order of the fitted constants.
std::vector<LogPrior> priors_of(const DevicePeaks& peaks) {
  return {{40e-6, 1.0},                         // launch
          {0.8 * peaks.flops_per_second, 0.2},  // large GEMMs
          {0.8 * peaks.memory.value, 0.5},      // with bytes counted, not measured
          {0.35, 0.5},                          // unaligned GEMMs
          {1.5e-3, 1.0},                        // head
          {0.4e-3, 1.0},                        // embedding
          {13e9, 1.0},                          // between stages
          {28, 0.3},                            // Adam: 4-byte weight and moments read and written,
                                                // 2-byte gradient read, 2-byte weight written
          {0.3e-3, 1.0}};                       // step
}

TransformerConstants constants_of(const std::vector<double>& x) {
  return {{Seconds(x[0]), x[1], BytesPerSecond(x[2]), x[3]},
          Seconds(x[4]),
          Seconds(x[5]),
          BytesPerSecond(x[6]),
          x[7],
          Seconds(x[8])};
}

ShapeTimes corrected(ShapeTimes times, const ShapeCorrection& correction) {
  times.layer_forward = times.layer_forward * correction.layer;
  times.layer_backward = times.layer_backward * correction.layer;
  times.head = times.head * correction.head;
  times.embedding = times.embedding * correction.head;
  return times;
}

using RunsByShape = std::map<TransformerShape, std::vector<std::size_t>>;

RunsByShape group_by_shape(const std::vector<TransformerRun>& runs) {
  RunsByShape groups;
  for (std::size_t i = 0; i < runs.size(); ++i) groups[shape_of(runs[i].job)].push_back(i);
  return groups;
}

/// Reports every error that predicting these runs can meet, before any fit.
Result<void> verify_runs(const std::vector<TransformerRun>& runs,
                         const CollectiveCurves& all_reduce) {
  const TransformerConstants any = constants_of(std::vector<double>(9, 1.0));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto check = [&]() -> Result<void> {
      MOTLEY_RETURN_IF_ERROR(verify_job(runs[i].job));
      MOTLEY_ASSIGN(const ShapeTimes times, estimate_shape(shape_of(runs[i].job), any, all_reduce));
      MOTLEY_RETURN_IF_ERROR(estimate_step(runs[i].job, times, any, all_reduce));
      return {};
    };
    if (const auto checked = check(); !checked)
      return with_context(fmt::format("run {}", i), checked.error());
  }
  return {};
}

double predict(const TransformerJob& job, const ShapeTimes& times,
               const TransformerConstants& constants, const CollectiveCurves& all_reduce) {
  const auto step = estimate_step(job, times, constants, all_reduce);
  MOTLEY_CHECK(step.has_value());  // verify_runs has checked every error
  return step->total.value;
}

ShapeTimes times_of(const TransformerShape& shape, const TransformerConstants& constants,
                    const CollectiveCurves& all_reduce) {
  const auto times = estimate_shape(shape, constants, all_reduce);
  MOTLEY_CHECK(times.has_value());
  return *times;
}

std::vector<double> measured_of(const std::vector<TransformerRun>& runs) {
  std::vector<double> seconds;
  for (const TransformerRun& run : runs) seconds.push_back(run.measured.value);
  return seconds;
}

Result<TransformerConstants> fit_constants(const std::vector<TransformerRun>& runs,
                                           const CollectiveCurves& all_reduce,
                                           const DevicePeaks& peaks) {
  const RunsByShape groups = group_by_shape(runs);
  const auto predictions = [&](const std::vector<double>& x) {
    const TransformerConstants constants = constants_of(x);
    std::vector<double> seconds(runs.size());
    for (const auto& [shape, places] : groups) {
      const ShapeTimes times = times_of(shape, constants, all_reduce);
      for (const std::size_t i : places)
        seconds[i] = predict(runs[i].job, times, constants, all_reduce);
    }
    return seconds;
  };
  MOTLEY_ASSIGN(const std::vector<double> x, fit_log_parameters(predictions, measured_of(runs),
                                                                priors_of(peaks), kAnalyticError));
  return constants_of(x);
}

/// Requires that all `runs` have one shape.
Result<ShapeCorrection> fit_correction(const std::vector<TransformerRun>& runs,
                                       const TransformerConstants& constants,
                                       const CollectiveCurves& all_reduce) {
  const ShapeTimes times = times_of(shape_of(runs[0].job), constants, all_reduce);
  const auto predictions = [&](const std::vector<double>& x) {
    std::vector<double> seconds;
    for (const TransformerRun& run : runs)
      seconds.push_back(predict(run.job, corrected(times, {x[0], x[1]}), constants, all_reduce));
    return seconds;
  };
  MOTLEY_ASSIGN(
      const std::vector<double> x,
      fit_log_parameters(predictions, measured_of(runs),
                         {{1, kCorrectionSpread}, {1, kCorrectionSpread}}, kCorrectedError));
  return ShapeCorrection{x[0], x[1]};
}

std::vector<TransformerRun> select(const std::vector<TransformerRun>& runs,
                                   const std::vector<std::size_t>& places) {
  std::vector<TransformerRun> selected;
  for (const std::size_t i : places) selected.push_back(runs[i]);
  return selected;
}

/// Folds of whole groups of runs, with groups spread evenly over folds in random order.
struct Folds {
  std::vector<std::size_t> of_run;
  std::size_t groups = 0;
};
template <typename Key>
Folds draw_folds(const std::vector<TransformerRun>& runs, Key (*key)(const TransformerJob&)) {
  std::map<Key, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) groups[key(runs[i].job)].push_back(i);
  std::vector<std::size_t> fold(groups.size());
  for (std::size_t g = 0; g < fold.size(); ++g) fold[g] = g % kFolds;
  SplitMix64 random(kFoldSeed);
  for (std::size_t g = fold.size(); g > 1; --g) std::swap(fold[g - 1], fold[random.below(g)]);
  Folds folds{std::vector<std::size_t>(runs.size()), groups.size()};
  std::size_t g = 0;
  for (const auto& [shared, places] : groups) {
    for (const std::size_t i : places) folds.of_run[i] = fold[g];
    ++g;
  }
  return folds;
}

std::array<std::int64_t, 3> layout_of(const TransformerJob& job) {
  return {job.tensor, job.pipeline, job.data};
}

/// Predicts each fold by a model of the others.
Result<void> add_residuals(const std::vector<TransformerRun>& runs,
                           const std::vector<std::size_t>& fold_of_run,
                           const CollectiveCurves& all_reduce, const DevicePeaks& peaks,
                           TransformerResiduals& residuals) {
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<TransformerRun> fitted, left_out;
    for (std::size_t i = 0; i < runs.size(); ++i)
      (fold_of_run[i] == fold ? left_out : fitted).push_back(runs[i]);
    MOTLEY_ASSIGN(const TransformerModel model, fit_transformer_model(fitted, all_reduce, peaks));
    for (const TransformerRun& run : left_out) {
      MOTLEY_ASSIGN(const TransformerStep step, estimate_step(model, run.job));
      const bool is_known = model.corrections.contains(shape_of(run.job));
      (is_known ? residuals.known_shape : residuals.new_shape)
          .push_back(run.measured / step.total - 1);
    }
  }
  return {};
}

}  // namespace

Result<TransformerModel> fit_transformer_model(const std::vector<TransformerRun>& runs,
                                               const CollectiveCurves& all_reduce,
                                               const DevicePeaks& peaks) {
  MOTLEY_RETURN_IF_ERROR(verify_runs(runs, all_reduce));
  TransformerModel model;
  model.all_reduce = all_reduce;
  MOTLEY_ASSIGN(model.constants, fit_constants(runs, all_reduce, peaks));
  for (const auto& [shape, places] : group_by_shape(runs)) {
    MOTLEY_ASSIGN(model.corrections[shape],
                  fit_correction(select(runs, places), model.constants, all_reduce));
  }
  return model;
}

Result<TransformerStep> estimate_step(const TransformerModel& model, const TransformerJob& job) {
  MOTLEY_RETURN_IF_ERROR(verify_job(job));
  const TransformerShape shape = shape_of(job);
  MOTLEY_ASSIGN(ShapeTimes times, estimate_shape(shape, model.constants, model.all_reduce));
  if (const auto found = model.corrections.find(shape); found != model.corrections.end())
    times = corrected(times, found->second);
  return estimate_step(job, times, model.constants, model.all_reduce);
}

Result<TransformerResiduals> cross_validate(const std::vector<TransformerRun>& runs,
                                            const CollectiveCurves& all_reduce,
                                            const DevicePeaks& peaks) {
  const Folds layouts = draw_folds(runs, layout_of), shapes = draw_folds(runs, shape_of);
  if (layouts.groups < kFolds || shapes.groups < kFolds)
    return usage_error("cost.fit",
                       fmt::format("runs of {} layouts and {} shapes, wanted {} or more of both to "
                                   "judge a fit",
                                   layouts.groups, shapes.groups, kFolds));
  TransformerResiduals residuals;
  MOTLEY_RETURN_IF_ERROR(add_residuals(runs, layouts.of_run, all_reduce, peaks, residuals));
  MOTLEY_RETURN_IF_ERROR(add_residuals(runs, shapes.of_run, all_reduce, peaks, residuals));
  return residuals;
}

Result<cost::PredictionInterval> estimate_interval(const TransformerModel& model,
                                                   const TransformerJob& job,
                                                   const TransformerResiduals& residuals) {
  MOTLEY_ASSIGN(const TransformerStep step, estimate_step(model, job));
  const bool is_known = model.corrections.contains(shape_of(job));
  return cost::conformal_interval(step.total.value,
                                  is_known ? residuals.known_shape : residuals.new_shape);
}

}  // namespace motley::peers
