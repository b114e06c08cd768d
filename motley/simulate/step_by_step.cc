#include "motley/simulate/step_by_step.h"

#include <algorithm>
#include <utility>

#include "motley/base/random.h"
#include "motley/simulate/drawn_times.h"

namespace motley::simulate {
namespace {

/// Last begin of a step: its sum with any step's time fits.
constexpr Nanoseconds kLastBegin = Nanoseconds{1} << 60;

}  // namespace

StepByStep::StepByStep(std::shared_ptr<const program::Program> program, ProgramTasks tasks,
                       const Conditions& conditions)
    : program_(std::move(program)),
      tasks_(std::move(tasks)),
      graph_(tasks_.graph),
      conditions_(&conditions),
      key_(draw_key(conditions.seed, 0)),
      stretches_(find_stretches(*program_, conditions.slow_downs, graph_.lanes())) {
  for (const program::DeviceProgram& device : program_->devices)
    has_jitter_ = has_jitter_ || conditions.jitter.contains(device.device);
}

Result<StepByStep> StepByStep::make(std::shared_ptr<const program::Program> program,
                                    const cost::CostModel& cost, const Conditions& conditions) {
  MOTLEY_ASSIGN(ProgramTasks tasks, lay_out_program(*program, cost));
  MOTLEY_RETURN_IF_ERROR(check_steps(tasks, 1, most_factor(conditions)));
  return StepByStep(std::move(program), std::move(tasks), conditions);
}

StepByStep::Slowness StepByStep::slowness_at(Nanoseconds time) const {
  Slowness slowness{std::vector<double>(program_->devices.size(), 1), INT64_MAX};
  if (stretches_.empty()) return slowness;
  for (std::size_t rank = 0; rank < slowness.factors.size(); ++rank) {
    for (const Stretch& stretch : stretches_[2 * rank]) {
      if (stretch.from > time) {
        slowness.until = std::min(slowness.until, stretch.from);
        break;
      }
      slowness.factors[rank] = stretch.factor;
    }
  }
  return slowness;
}

Result<StepByStep::Times> StepByStep::run(const Which& which, Nanoseconds begin) {
  if (begin > kLastBegin)
    return usage_error("simulate.size", "the steps take more than 2^60 ns together");
  if (has_jitter_) return run_anew(which, begin);
  Slowness slowness = slowness_at(begin);
  const auto found = known_.find(slowness.factors);
  if (found != known_.end() && begin + found->second.end <= slowness.until) {
    Times times = found->second;
    times.end += begin;
    return times;
  }
  MOTLEY_ASSIGN(Times times, run_anew(which, begin));
  if (times.end <= slowness.until) {
    Times& known = known_[std::move(slowness.factors)];
    known = times;
    known.end -= begin;
  }
  return times;
}

Result<StepByStep::Times> StepByStep::run_anew(const Which& which, Nanoseconds begin) {
  for (std::size_t rank = 0; rank < program_->devices.size(); ++rank) {
    const program::DeviceProgram& device = program_->devices[rank];
    const auto jitter = conditions_->jitter.find(device.device);
    if (jitter == conditions_->jitter.end()) continue;
    DrawnTimes(device, tasks_.tasks[rank], jitter->second)
        .draw(key_,
              {.step = static_cast<std::uint32_t>(which.step),
               .device = static_cast<std::uint32_t>(hash_bytes(device.device)),
               .attempt = static_cast<std::uint32_t>(which.attempt)},
              tasks_.graph.durations, graph_.durations);
  }
  const auto found = find_times(graph_, {begin, stretches_});
  if (!found) return tl::make_unexpected(deadlock_error(*program_, tasks_, found.error()));
  Times times{found->end, {}};
  for (const std::vector<TaskId>& tasks : tasks_.tasks) {
    std::vector<double>& took = times.took.emplace_back();
    for (const TaskId task : tasks)
      took.push_back(static_cast<double>(found->ends[task.index()] - found->begins[task.index()]) /
                     1e9);
  }
  return times;
}

}  // namespace motley::simulate
