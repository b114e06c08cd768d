#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/adapt/change_watch.h"
#include "motley/adapt/first_steps.h"
#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/cost/step/step_curves.h"
#include "motley/policy/observation.h"

namespace motley::adapt {

/// What is believed of a device before it is seen.
struct CurvePrior {
  cost::StepCurves curves;  ///< `end` above 0
  double trust = 0.3;       ///< standard deviation of measured over believed times
};

/// The curves of one device, learned from the steps that it takes (docs/algorithms.md, "Curves
/// learned online"). What is measured at one number of samples is a point: a robust mean of the
/// last steps. The curve is the best linear estimate from all points of a line, or of the prior
/// times a factor, plus local deviations from it, made nondecreasing. A change of the device's
/// speed (change_watch.h) multiplies all that was learned by one factor and leaves this factor
/// open; points measured since replace older ones.
///
///   LearnedCurves learned;
///   learned.observe({.device = "a:0", .samples = 32, .ready = {}, .end = 0.1, .update = {}}, 1);
///   learned.estimate(128).curves.end.at(64);  // 0.18: of 0.1 s, 0.02 are taken as fixed
class LearnedCurves {
 public:
  explicit LearnedCurves(std::optional<CurvePrior> prior = std::nullopt);

  /// A change that an observation revealed.
  struct Change {
    double factor = 1;            ///< of all times, from before to now
    std::int64_t since_step = 0;  ///< the first step that shows it
  };
  /// The device's part of a step, in which it had samples. Times that are not positive and finite
  /// are passed over.
  std::optional<Change> observe(const policy::DeviceStep& seen, std::int64_t step);

  /// Is anything known, believed or measured?
  bool is_known() const { return prior_ || !window_.empty() || !points_.empty(); }
  /// Has the device taken a step?
  bool is_seen() const { return !window_.empty() || !points_.empty(); }

  struct Estimated {
    cost::StepCurves curves;  ///< all with points at the same samples
    cost::Curve deviation;    ///< standard deviation of curves.end
  };
  /// Up to so many samples. Something must be known.
  Estimated estimate(std::int64_t most) const;
  /// A prior is `factor` times as long as it said: measured over believed, where there are both.
  std::optional<double> over_prior() const;

  /// Most samples of a step so far; 0: none.
  std::int64_t largest_seen() const { return largest_seen_; }
  /// Standard deviation of a step's time over its mean.
  double spread() const;
  /// What the spread is learned from: the sum of squares and how many count in it.
  double squares() const { return squares_; }
  double degrees() const { return degrees_; }
  /// What is believed of the spread until it is measured: that of devices beside this one.
  void assume_spread(double spread) { assumed_spread_ = spread; }
  /// What first steps at a number of samples took beyond the second ones so far.
  const FirstSteps& first_steps() const { return first_steps_; }
  /// What is believed of them, from all devices.
  void assume_first(FirstSteps all) { assumed_first_ = all; }

  /// What was learned; the prior is not in it.
  Json state() const;
  Result<void> restore(const Json& json, const std::string& where);
  static void fields(auto& it, auto& field) {  // states of before have no `first`
    field("points", it.points_)("window", it.window_)("samples", it.window_samples_);
    field("step", it.last_step_)("largest", it.largest_seen_)("updates", it.updates_);
    field("watch", it.watch_)("log_level", it.log_level_)("squares", it.squares_);
    field("degrees", it.degrees_)("assumed", it.assumed_spread_);
    field.maybe("first", it.first_steps_).maybe("assumed_first", it.assumed_first_);
  }
  Result<void> check(const std::string& where) const;

 private:
  /// A step at the present number of samples.
  struct Reading {
    double log_end = 0;
    std::vector<double> ready;  // over end
    bool is_first = false;      // the step before was of other samples
    static void fields(auto& it, auto& field) {
      field("log_end", it.log_end)("ready", it.ready).maybe("first", it.is_first);
    }
  };
  /// What was measured at a number of samples.
  struct Point {
    std::int64_t samples = 0;
    double log_end = 0;
    double weight = 0;          // readings
    std::vector<double> ready;  // over end
    int age = 0;                // changes since
    std::int64_t step = 0;      // last one
    static void fields(auto& it, auto& field) {
      field("samples", it.samples)("log_end", it.log_end)("weight", it.weight)("ready", it.ready);
      field("age", it.age)("step", it.step);
    }
    Result<void> check(const std::string& where) const;
  };
  struct Fit;

  std::optional<Change> find_change(double residual, double deviation, std::int64_t step);
  void close_window();
  void count_spread(double residual, double deviation);
  Point summary(std::size_t first, std::size_t last) const;
  double first_weight() const;
  std::vector<Point> all_points() const;
  std::vector<double> ready_at(const std::vector<Point>& points, double samples) const;
  std::size_t exchanges() const;

  std::optional<CurvePrior> prior_;
  std::vector<Point> points_;
  std::vector<Reading> window_;
  std::int64_t window_samples_ = 0, last_step_ = 0, largest_seen_ = 0;
  std::vector<std::vector<double>> updates_;  // of the last steps
  ChangeWatch watch_;
  double log_level_ = 0;  // of the prior, by changes
  double squares_ = 0, degrees_ = 0, assumed_spread_ = 0.03;
  FirstSteps first_steps_, assumed_first_;
};

}  // namespace motley::adapt
