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

/// Time of operators that were never measured, from those of a device that were.
///
/// For each operator (by name and overload) a line
///   t = launches t_0 + flops / rate + bytes / bandwidth, all coefficients >= 0,
/// is fitted to its measurements by relative least squares, with a small ridge that keeps flops
/// and bytes apart where they grow together. What the line leaves over is kept: r_i = ln(measured /
/// line). A new shape gets the line times exp(r), r a mean of the r_i weighted by nearness,
///   r = sum w_i r_i / (sum w_i + 1/4),
/// w_i the nearness (scratch_model.h): a measured neighbour within a factor of 1.4 decides, beyond
/// a factor of 3 only the line does. So caches and vector widths, which bend the line, are followed
/// where something was measured, and it goes back to the line elsewhere: the prediction cannot run
/// away. An operator of which nothing was measured gets the line of all, and so does one of which
/// all that was measured is a launch: it tells no rate.
///
/// Views cost what views were measured to cost. Known error: docs/models.md, "Operators not
/// measured".
class OperatorModel {
 public:
  /// Usage error when there are too few entries to fit anything (fewer than 10 with work).
  static Result<OperatorModel> fit(const std::vector<OpEntry>& entries);

  Seconds seconds(std::string_view name, const OperatorWork& work) const;
  /// No more than `seconds`, than what was measured of the operator, and than what lies on a line
  /// between two measurements: its line times the least ratio measured, if below 1.
  Seconds least_seconds(std::string_view name, const OperatorWork& work) const;
  /// Of the operators that it was fitted to.
  const ScratchModel& scratch() const { return scratch_; }

 private:
  struct Sample {
    OperatorWork work;
    double residual;
  };
  struct Line {
    double launch = 0, per_flop = 0, per_byte = 0;
    std::vector<Sample> samples;
    double least = 0;  // residual, or 0 if all are above
    double at(const OperatorWork& work) const {
      return launch + per_flop * work.flops + per_byte * work.bytes;
    }
  };
  static Result<Line> fit_line(const std::vector<const OpEntry*>& entries);
  /// The line, with what it leaves over of these.
  static Line with_samples(Line line, const std::vector<const OpEntry*>& entries);
  /// Is any of them more than a launch, by the line of all?
  bool tells_rates(const std::vector<const OpEntry*>& entries) const;
  const Line& line_of(std::string_view name) const;

  std::map<std::string, Line, std::less<>> lines_;  // by operator
  Line all_;
  ScratchModel scratch_;
  double view_ = 0, least_view_ = 0;  // seconds of what does no work
};

/// A model's operators by OperatorModel: as they are expected to be, or as none can be below.
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
