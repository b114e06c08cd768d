#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "motley/control/clock.h"
#include "motley/control/rehearsal/rehearsal.h"
#include "motley/control/training/availability_trace.h"

namespace motley::control {

/// The time of a rehearsal, and its steps: done, lost with a device, or taken back.
class RehearsedCourse : public Clock {
 public:
  Seconds steady() const override { return to_seconds(now_); }
  Seconds calendar() const override { return to_seconds(now_); }
  trace::Nanoseconds now() const { return now_; }
  std::int64_t step() const { return std::ssize(result.step_s); }  ///< the next one
  std::int64_t attempt() const { return attempts_.contains(step()) ? attempts_.at(step()) : 0; }

  void lose(trace::Nanoseconds time) {
    now_ += time;
    result.lost += to_seconds(time);
  }
  /// The next step is lost, `time` after now.
  void lose_step(trace::Nanoseconds time) {
    ++attempts_[step()];
    ++result.lost_steps;
    lose(time);
  }
  /// A change begins after a pause.
  void change(trace::Nanoseconds pause) {
    now_ += pause;
    result.paused += to_seconds(pause);
    ++result.changes;
  }
  /// The next step is done, and worth `progress`. Returns its seconds.
  double end_step(trace::Nanoseconds end, std::int64_t batch, double progress) {
    result.step_s.push_back(to_seconds(end - now_).value);
    now_ = end;
    result.batch = batch;
    result.progress += progress;
    result.samples += batch;
    taken_.emplace_back(result.samples, result.progress);
    return result.step_s.back();
  }

  /// The job stops here with a checkpoint.
  void stop() { stopped_at_ = step(); }
  /// Returns the step of the last checkpoint: periodic, or where the job stopped.
  std::int64_t saved_step(std::int64_t checkpoint_every) const {
    return std::max(stopped_at_, step() / checkpoint_every * checkpoint_every);
  }
  /// Drops the steps since that checkpoint.
  void go_back(std::int64_t saved) {
    for (auto lost = result.step_s.begin() + saved; lost != result.step_s.end(); ++lost)
      result.lost += Seconds(*lost);
    result.lost_steps += step() - saved;
    result.step_s.resize(static_cast<std::size_t>(saved));
    taken_.resize(static_cast<std::size_t>(saved) + 1);
    std::tie(result.samples, result.progress) = taken_.back();
  }

  Rehearsed result;

 private:
  trace::Nanoseconds now_ = 0;
  std::int64_t stopped_at_ = 0;
  std::map<std::int64_t, std::int64_t> attempts_;  // of steps that were lost
  // Samples and progress, by steps done.
  std::vector<std::pair<std::int64_t, double>> taken_ = {{0, 0}};
};

}  // namespace motley::control
