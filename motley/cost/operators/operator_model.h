#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/cost/measured/operator_work.h"
#include "motley/cost/measured/profile_store.h"
#include "motley/cost/operators/scratch_model.h"
#include "motley/cost/operators/time_source.h"
#include "motley/graph/graph.h"

namespace motley::cost {

/// Predicts unmeasured operators from measured ones of the same device.
///
/// Each operator (by name and overload) has a line
///   t = launches t_0 + flops / rate + bytes / bandwidth, all coefficients >= 0,
/// fitted to its measurements by relative least squares, with a small ridge that separates flops
/// and bytes if they grow together. The residuals are kept: r_i = ln(measured / line). A new shape
/// takes the line times exp(r), where r is the mean of the r_i weighted by nearness,
///   r = sum w_i r_i / (sum w_i + 1/4),
/// with w_i the nearness (scratch_model.h): a measured neighbour within a factor of 1.4 decides,
/// beyond a factor of 3 only the line does. So the model follows caches and vector widths, which
/// bend the line, near measurements and returns to the line elsewhere: predictions cannot diverge.
/// An operator without measurements, or whose measurements are all launches and give no rate, takes
/// the line of all operators.
///
/// Views cost as measured. Known error: docs/models.md, "Operators not measured".
class OperatorModel {
 public:
  /// Usage error for fewer than 10 entries with work.
  static Result<OperatorModel> fit(const std::vector<OpEntry>& entries);

  Seconds seconds(std::string_view name, const OperatorWork& work) const;
  /// Returns a lower bound of `seconds`, of the operator's measurements, and of lines between two
  /// of them: its line times the least measured ratio, if below 1.
  Seconds least_seconds(std::string_view name, const OperatorWork& work) const;
  const ScratchModel& scratch() const { return scratch_; }

 private:
  struct Sample {
    OperatorWork work;
    double residual;
  };
  struct Line {
    double launch = 0, per_flop = 0, per_byte = 0;
    std::vector<Sample> samples;
    double least = 0;  // smallest residual, or 0 if all are above
    double at(const OperatorWork& work) const {
      return launch + per_flop * work.flops + per_byte * work.bytes;
    }
  };
  static Result<Line> fit_line(const std::vector<const OpEntry*>& entries);
  /// Adds these entries to the line, with their residuals.
  static Line with_samples(Line line, const std::vector<const OpEntry*>& entries);
  /// Returns whether any of them takes more than a launch by the line of all.
  bool tells_rates(const std::vector<const OpEntry*>& entries) const;
  const Line& line_of(std::string_view name) const;

  std::map<std::string, Line, std::less<>> lines_;  // by operator
  Line all_;
  ScratchModel scratch_;
  double view_ = 0, least_view_ = 0;  // seconds of a view
};

/// A model's operators by OperatorModel: expected times or lower bounds.
class ModelledTimes : public WorkTimes {
 public:
  enum class Estimate { kUsual, kLeast };
  ModelledTimes(std::shared_ptr<const graph::Graph> graph, OperatorModel model,
                Estimate estimate = Estimate::kUsual)
      : WorkTimes(std::move(graph)), model_(std::move(model)), estimate_(estimate) {}
  Answer answer(std::string_view name, DType dtype, const OperatorWork& work) const override;

 protected:
  Bytes scratch(std::string_view name, DTypes reads, const OperatorWork& work) const override;

 private:
  OperatorModel model_;
  Estimate estimate_;
};

}  // namespace motley::cost
