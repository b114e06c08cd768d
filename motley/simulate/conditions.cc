#include "motley/simulate/conditions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "motley/simulate/drawn_times.h"
#include "motley/simulate/program_tasks.h"

namespace motley::simulate {
namespace {

double seconds(Nanoseconds time) { return static_cast<double>(time) / 1e9; }

class ManyRuns {
 public:
  ManyRuns(const program::Program& program, const Conditions& conditions, ProgramTasks tasks,
           const ManyOptions& options)
      : program_(program),
        conditions_(conditions),
        tasks_(std::move(tasks)),
        runs_(std::max(options.runs, 0)),
        steps_(static_cast<std::size_t>(std::max(options.steps, 0))),
        graph_(repeat_steps(tasks_, static_cast<int>(steps_))),
        stretches_(find_stretches(program, conditions.slow_downs, tasks_.graph.lanes())),
        device_steps_(program.devices.size()),
        device_ends_(program.devices.size(), std::vector<Nanoseconds>(steps_)) {
    lanes_of_rank_.resize(program.devices.size());
    for (std::size_t rank = 0; rank < lanes_of_rank_.size(); ++rank)
      lanes_of_rank_[rank] = {2 * rank, 2 * rank + 1};
    for (std::size_t pair = 0; pair < tasks_.pairs.size(); ++pair)
      for (const Rank rank : {tasks_.pairs[pair].source, tasks_.pairs[pair].target})
        lanes_of_rank_[rank.index()].push_back(2 * program.devices.size() + pair);
  }

  Result<Outcomes> run() {
    for (int run = 0; run < runs_; ++run) {
      key_ = draw_key(conditions_.seed, run);
      MOTLEY_RETURN_IF_ERROR(run_once());
    }
    outcomes_.step = Distribution(std::move(step_times_));
    outcomes_.total = Distribution(std::move(totals_));
    for (std::vector<double>& times : device_steps_)
      outcomes_.device_step.emplace_back(std::move(times));
    return std::move(outcomes_);
  }

 private:
  /// Runs once: attempts from the last checkpoint on until all steps are done.
  Result<void> run_once() {
    std::size_t done = 0;
    Nanoseconds now = 0;
    for (std::uint32_t attempt = 0;; ++attempt) {
      const std::optional<Nanoseconds> launch = when_all_are_there(now);
      if (!launch) {
        ++outcomes_.stopped_runs;
        return {};
      }
      const Nanoseconds begin =
          *launch + (attempt > 0 ? whole_nanoseconds(conditions_.recovery.restart) : 0);
      draw_durations(attempt);
      MOTLEY_RETURN_IF_ERROR(find_step_ends(begin));
      const std::size_t wanted = steps_ - done;
      const Nanoseconds end = wanted == 0 ? begin : step_ends_[wanted - 1];
      const Nanoseconds failure = next_absence(*launch);
      const std::size_t finished = count_finished(wanted, failure);
      record(begin, finished);
      if (failure >= end) {
        totals_.push_back(seconds(end));
        return {};
      }
      const auto every = static_cast<std::size_t>(conditions_.recovery.checkpoint_every);
      const std::size_t kept = (done + finished) / every * every;
      outcomes_.lost_steps += static_cast<std::int64_t>(done + finished - kept);
      done = kept;
      now = failure + whole_nanoseconds(conditions_.recovery.detection);
    }
  }

  std::size_t count_finished(std::size_t wanted, Nanoseconds failure) const {
    std::size_t finished = 0;
    while (finished < wanted && step_ends_[finished] <= failure) ++finished;
    return finished;
  }

  /// Returns the first time from `now` on with no device absent; none if one stays away.
  std::optional<Nanoseconds> when_all_are_there(Nanoseconds now) const {
    for (bool moved = true; moved;) {
      moved = false;
      for (const Absence& absence : conditions_.absences) {
        if (whole_nanoseconds(absence.from) > now || whole_nanoseconds(absence.until) <= now)
          continue;
        if (std::isinf(absence.until.value)) return std::nullopt;
        now = whole_nanoseconds(absence.until);
        moved = true;
      }
    }
    return now;
  }

  Nanoseconds next_absence(Nanoseconds now) const {
    Nanoseconds first = INT64_MAX;
    for (const Absence& absence : conditions_.absences)
      if (whole_nanoseconds(absence.from) >= now)
        first = std::min(first, whole_nanoseconds(absence.from));
    return first;
  }

  void draw_durations(std::uint32_t attempt) {
    for (std::size_t rank = 0; rank < program_.devices.size(); ++rank) {
      const auto found = conditions_.jitter.find(program_.devices[rank].device);
      if (found == conditions_.jitter.end()) continue;
      const DrawnTimes times(program_.devices[rank], tasks_.tasks[rank], found->second);
      for (std::size_t step = 0; step < steps_; ++step)
        times.draw(
            key_,
            {.step = static_cast<std::uint32_t>(step),
             .device = static_cast<std::uint32_t>(rank),
             .attempt = attempt},
            tasks_.graph.durations,
            std::span(graph_.durations).subspan(step * tasks_.graph.tasks(), tasks_.graph.tasks()));
    }
  }

  /// Finds when each device, and all together, finish each step of an attempt.
  Result<void> find_step_ends(Nanoseconds begin) {
    const auto times = find_times(graph_, {begin, stretches_});
    if (!times) return tl::make_unexpected(deadlock_error(program_, tasks_, times.error()));
    step_ends_.assign(steps_, begin);
    for (std::size_t rank = 0; rank < device_ends_.size(); ++rank) {
      Nanoseconds end = begin;
      for (std::size_t step = 0; step < steps_; ++step) {
        const std::size_t offset = step * tasks_.graph.tasks();
        for (const std::size_t lane : lanes_of_rank_[rank])
          if (const auto in_lane = tasks_.graph.tasks_of(lane); !in_lane.empty())
            end = std::max(end, times->ends[offset + static_cast<std::size_t>(in_lane.back())]);
        device_ends_[rank][step] = end;
        step_ends_[step] = std::max(step_ends_[step], end);
      }
    }
    return {};
  }

  void record(Nanoseconds begin, std::size_t steps) {
    for (std::size_t step = 0; step < steps; ++step) {
      step_times_.push_back(seconds(step_ends_[step] - (step > 0 ? step_ends_[step - 1] : begin)));
      for (std::size_t rank = 0; rank < device_ends_.size(); ++rank) {
        const std::vector<Nanoseconds>& ends = device_ends_[rank];
        device_steps_[rank].push_back(seconds(ends[step] - (step > 0 ? ends[step - 1] : begin)));
      }
    }
  }

  const program::Program& program_;
  const Conditions& conditions_;
  const ProgramTasks tasks_;
  const int runs_;
  const std::size_t steps_;
  TaskGraph graph_;                              // all steps; durations change between attempts
  std::vector<std::vector<Stretch>> stretches_;  // by lane
  std::vector<std::vector<std::size_t>> lanes_of_rank_;  // a pair's lane belongs to both
  std::array<std::uint32_t, 2> key_{};                   // of this run's draws
  std::vector<Nanoseconds> step_ends_;                   // of this attempt
  std::vector<double> step_times_, totals_;
  std::vector<std::vector<double>> device_steps_;      // by rank
  std::vector<std::vector<Nanoseconds>> device_ends_;  // by rank and step of this attempt
  Outcomes outcomes_;
};

}  // namespace

Result<Outcomes> simulate_many(const program::Program& program, const cost::CostModel& cost,
                               const Conditions& conditions, const ManyOptions& options) {
  std::vector<std::string> devices;
  for (const program::DeviceProgram& device : program.devices) devices.push_back(device.device);
  MOTLEY_RETURN_IF_ERROR(check_conditions(conditions, devices, "the program"));
  MOTLEY_ASSIGN(ProgramTasks tasks, lay_out_program(program, cost));
  MOTLEY_RETURN_IF_ERROR(check_steps(tasks, options.steps, most_factor(conditions)));
  return ManyRuns(program, conditions, std::move(tasks), options).run();
}

}  // namespace motley::simulate
