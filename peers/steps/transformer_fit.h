#pragma once

#include <map>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/trust/interval.h"
#include "peers/steps/transformer_step.h"

namespace motley::peers {

/// A measured step.
struct TransformerRun {
  TransformerJob job;
  Seconds measured;  ///< > 0
  bool operator==(const TransformerRun&) const = default;
};

/// What a device can do at best.
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

/// Constants of jobs on one kind of device, and what was measured of single shapes.
struct TransformerModel {
  TransformerConstants constants;
  std::map<TransformerShape, ShapeCorrection> corrections;  ///< of each shape among the runs
  CollectiveCurves all_reduce;
};

/// Fits in two stages. First the nine constants of TransformerConstants to all runs
/// (fit_log_parameters, 5 % error), from `peaks` and what is usual of host, links and optimizer.
/// Then, constants kept, two factors for each shape among the runs (spread 15 % around 1, 2 %
/// error). A shape without runs gets no factors: it is predicted by the analytic model alone.
/// Errors: as verify_job and estimate_shape, with the run's place in `runs`; cost.fit without runs.
Result<TransformerModel> fit_transformer_model(const std::vector<TransformerRun>& runs,
                                               const CollectiveCurves& all_reduce,
                                               const DevicePeaks& peaks);

/// Errors: as verify_job and estimate_shape.
Result<TransformerStep> estimate_step(const TransformerModel& model, const TransformerJob& job);

/// Relative residuals (measured / predicted - 1) of runs that were left out of the fit.
struct TransformerResiduals {
  std::vector<double> known_shape;  ///< other runs of their shape were in the fit
  std::vector<double> new_shape;    ///< none was
};

/// Five-fold cross-validation twice: over whole layouts (tensor, pipeline and data ranks), as the
/// job in question often has another one than the runs, and over whole shapes. Folds are drawn by a
/// fixed seed. Ten fits. Usage error (cost.fit) for runs of fewer than five layouts or shapes.
Result<TransformerResiduals> cross_validate(const std::vector<TransformerRun>& runs,
                                            const CollectiveCurves& all_reduce,
                                            const DevicePeaks& peaks);

/// 80 % interval around estimate_step: from the residuals of known shapes where `model` has a
/// correction, of new shapes elsewhere.
Result<cost::PredictionInterval> estimate_interval(const TransformerModel& model,
                                                   const TransformerJob& job,
                                                   const TransformerResiduals& residuals);

}  // namespace motley::peers
