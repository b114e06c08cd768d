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

/// The prior of a device that has not been seen.
struct CurvePrior {
  cost::StepCurves curves;  ///< `end` above 0
  double trust = 0.3;       ///< standard deviation of measured over predicted times
};

/// Learns one device's curves from its steps (docs/algorithms.md, "Curves learned online"). A point
/// is a robust mean of the last steps at one number of samples. The curve is the best linear
/// estimate from all points of a line, or of the prior times a factor, plus local deviations, made
/// nondecreasing. A change of speed (change_watch.h) multiplies everything learned by one factor
/// and makes it uncertain; new points replace older ones.
///
///   LearnedCurves learned;
///   learned.observe({.device = "a:0", .samples = 32, .ready = {}, .end = 0.1, .update = {}}, 1);
///   learned.estimate(128).curves.end.at(64);  // 0.18: of 0.1 s, 0.02 are taken as fixed
class LearnedCurves {
 public:
  explicit LearnedCurves(std::optional<CurvePrior> prior = std::nullopt);

  struct Change {
    double factor = 1;            ///< of all times, now over before
    std::int64_t since_step = 0;  ///< first step that shows it
  };
  /// Learns from a step with samples on the device. Skips times that are not positive and finite.
  std::optional<Change> observe(const policy::DeviceStep& seen, std::int64_t step);

  /// Returns whether there is a prior or a measurement.
  bool is_known() const { return prior_ || !window_.empty() || !points_.empty(); }
  bool is_seen() const { return !window_.empty() || !points_.empty(); }

  struct Estimated {
    cost::StepCurves curves;  ///< all with points at the same samples
    cost::Curve deviation;    ///< standard deviation of curves.end
  };
  /// Estimates the curves up to `most` samples. Requires is_known().
  Estimated estimate(std::int64_t most) const;
  /// Returns measured over predicted time where there are both.
  std::optional<double> over_prior() const;

  /// Returns the most samples of a step so far; 0: none.
  std::int64_t largest_seen() const { return largest_seen_; }
  /// Returns the standard deviation of a step's time over its mean.
  double spread() const;
  /// Return the sum of squares of the spread, and their number.
  double squares() const { return squares_; }
  double degrees() const { return degrees_; }
  /// Sets the spread assumed until it is measured: that of other devices.
  void assume_spread(double spread) { assumed_spread_ = spread; }
  /// Returns the excess of first steps at a number of samples over the second ones.
  const FirstSteps& first_steps() const { return first_steps_; }
  /// Sets the assumption about first steps, from all devices.
  void assume_first(FirstSteps all) { assumed_first_ = all; }

  /// Returns what was learned, without the prior.
  Json state() const;
  Result<void> restore(const Json& json, const std::string& where);
  static void fields(auto& it, auto& field) {  // older states lack `first`
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
    bool is_first = false;      // the step before had other samples
    static void fields(auto& it, auto& field) {
      field("log_end", it.log_end)("ready", it.ready).maybe("first", it.is_first);
    }
  };
  /// The measurement at a number of samples.
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
