#pragma once

#include <map>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/trust/interval.h"
#include "peers/steps/transformer_step.h"

namespace motley::peers {

struct TransformerRun {
  TransformerJob job;
  Seconds measured;  ///< > 0
  bool operator==(const TransformerRun&) const = default;
};

struct DevicePeaks {
  double flops_per_second = 0;  ///< of 2-byte matrix products
  BytesPerSecond memory;
};

/// Measured / analytic times of a shape.
struct ShapeCorrection {
  double layer = 1;  ///< forward and backward
  double head = 1;   ///< head and embedding
  bool operator==(const ShapeCorrection&) const = default;
};

/// Constants of jobs on one kind of device, with corrections for measured shapes.
struct TransformerModel {
  TransformerConstants constants;
  std::map<TransformerShape, ShapeCorrection> corrections;  ///< of each shape among the runs
  CollectiveCurves all_reduce;
};

/// Fits in two stages. First the nine constants of TransformerConstants to all runs
/// (fit_log_parameters, 5 % error), with priors from `peaks` and usual hosts, links and optimizers.
/// Then, with these fixed, two factors for each shape among the runs (spread 15 % around 1, 2 %
/// error). A shape without runs has no factors: only the analytic model predicts it. Errors: as
/// verify_job and estimate_shape, with the run's index; cost.fit without runs.
Result<TransformerModel> fit_transformer_model(const std::vector<TransformerRun>& runs,
                                               const CollectiveCurves& all_reduce,
                                               const DevicePeaks& peaks);

/// Errors: as verify_job and estimate_shape.
Result<TransformerStep> estimate_step(const TransformerModel& model, const TransformerJob& job);

/// Relative residuals (measured / predicted - 1) of runs left out of the fit.
struct TransformerResiduals {
  std::vector<double> known_shape;  ///< other runs of their shape were in the fit
  std::vector<double> new_shape;    ///< none was
};

/// Cross-validates with five folds twice: over whole layouts (tensor, pipeline and data ranks), as
/// a job's layout often differs from the runs', and over whole shapes. Folds have a fixed seed. Ten
/// fits. Usage error (cost.fit) for runs of fewer than five layouts or shapes.
Result<TransformerResiduals> cross_validate(const std::vector<TransformerRun>& runs,
                                            const CollectiveCurves& all_reduce,
                                            const DevicePeaks& peaks);

/// Returns the 80 % interval: by residuals of known shapes where corrected, else of new shapes.
Result<cost::PredictionInterval> estimate_interval(const TransformerModel& model,
                                                   const TransformerJob& job,
                                                   const TransformerResiduals& residuals);

}  // namespace motley::peers
