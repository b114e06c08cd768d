#include "motley/simulate/conditions.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "motley/base/random.h"
#include "motley/simulate/program_tasks.h"

namespace motley::simulate {
namespace {

constexpr double kLatest = 1e9;
constexpr std::uint32_t kWholeStep = UINT32_MAX;  // in place of an instruction

Nanoseconds nanoseconds(Seconds time) {
  return static_cast<Nanoseconds>(std::llround(std::min(time.value, kLatest) * 1e9));
}

double seconds(Nanoseconds time) { return static_cast<double>(time) / 1e9; }

/// Four independent standard normal numbers for a counter under a key (Box and Muller, 1958).
std::array<double, 4> draw_normals(std::array<std::uint32_t, 4> counter,
                                   std::array<std::uint32_t, 2> key) {
  const std::array<std::uint32_t, 4> words = philox4x32(counter, key);
  std::array<double, 4> normals;
  for (std::size_t i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log((words[i] + 1.0) * 0x1p-32));
    const double angle = 2 * std::numbers::pi * words[i + 1] * 0x1p-32;
    normals[i] = radius * std::cos(angle);
    normals[i + 1] = radius * std::sin(angle);
  }
  return normals;
}

/// A lognormal factor of mean 1 from a standard normal number.
class Factor {
 public:
  explicit Factor(double relative_deviation)
      : deviation_(std::sqrt(std::log1p(relative_deviation * relative_deviation))) {}
  double of(double normal) const {
    return std::exp(deviation_ * normal - deviation_ * deviation_ / 2);
  }
  bool is_exact() const { return deviation_ == 0; }
  /// draw_normals gives none beyond sqrt(64 ln 2).
  double most() const { return of(6.7); }

 private:
  double deviation_;
};

// ---- checks

/// Violations in the conditions' own words, the first one.
class ConditionsCheck {
 public:
  explicit ConditionsCheck(const program::Program& program) {
    for (const program::DeviceProgram& device : program.devices) devices_.insert(device.device);
  }

  Result<void> check(const Conditions& conditions) const {
    for (const auto& [device, jitter] : conditions.jitter) {
      MOTLEY_RETURN_IF_ERROR(check_device("jitter", device));
      for (const double deviation : {jitter.per_instruction, jitter.per_step})
        if (!(deviation >= 0 && deviation <= 10))
          return fault("jitter", device, "a relative standard deviation", deviation, "0 to 10");
    }
    for (const SlowDown& slow : conditions.slow_downs) {
      MOTLEY_RETURN_IF_ERROR(check_span("slow-down", slow.device, slow.from, slow.until));
      if (!(slow.factor > 0 && slow.factor <= 1e6))
        return fault("slow-down", slow.device, "a factor", slow.factor, "above 0, up to 1e6");
    }
    if (!conditions.faults.empty())
      return usage_error("simulate.conditions",
                         "faults: at an instruction of '" + conditions.faults[0].device +
                             "': they are for runs; a simulation has absences");
    for (const Absence& absence : conditions.absences)
      MOTLEY_RETURN_IF_ERROR(check_span("absence", absence.device, absence.from, absence.until));
    return check_recovery(conditions.recovery);
  }

 private:
  static tl::unexpected<Error> fault(std::string_view what, const std::string& device,
                                     std::string_view number, double found,
                                     std::string_view wanted) {
    return usage_error("simulate.conditions", fmt::format("{} of {}: found {} of {}, wanted {}",
                                                          what, device, number, found, wanted));
  }

  Result<void> check_device(std::string_view what, const std::string& device) const {
    if (devices_.contains(device)) return {};
    return usage_error("simulate.conditions",
                       fmt::format("{} of {}: the program has no such device", what, device));
  }

  Result<void> check_span(std::string_view what, const std::string& device, Seconds from,
                          Seconds until) const {
    MOTLEY_RETURN_IF_ERROR(check_device(what, device));
    if (!(from.value >= 0 && from.value <= kLatest))
      return fault(what, device, "a begin", from.value, "0 to 1e9 s");
    if (!(until > from)) return fault(what, device, "an end", until.value, "one after its begin");
    return {};
  }

  static Result<void> check_recovery(const Recovery& recovery) {
    for (const Seconds time : {recovery.detection, recovery.restart})
      if (!(time.value >= 0 && time.value <= kLatest))
        return usage_error(
            "simulate.conditions",
            fmt::format("recovery: found a time of {} s, wanted 0 to 1e9", time.value));
    if (recovery.checkpoint_every < 1)
      return usage_error(
          "simulate.conditions",
          fmt::format("recovery: found a checkpoint every {} steps, wanted 1 or more",
                      recovery.checkpoint_every));
    return {};
  }

  std::set<std::string_view> devices_;
};

/// The stretches of a device from its slow-downs.
std::vector<Stretch> find_stretches(const std::vector<SlowDown>& slow_downs,
                                    const std::string& device) {
  std::vector<Nanoseconds> times;
  for (const SlowDown& slow : slow_downs)
    if (slow.device == device)
      for (const Seconds time : {slow.from, slow.until}) times.push_back(nanoseconds(time));
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  std::vector<Stretch> pieces;
  for (const Nanoseconds time : times) {
    Stretch& piece = pieces.emplace_back(Stretch{time, 1});
    for (const SlowDown& slow : slow_downs)
      if (slow.device == device && nanoseconds(slow.from) <= time && time < nanoseconds(slow.until))
        piece.factor *= slow.factor;
  }
  return pieces;
}

/// No instruction takes more than so many times its time.
double most_factor(const Conditions& conditions) {
  double jitter = 1, stretched = 1;
  for (const auto& [device, of_device] : conditions.jitter)
    jitter = std::max(jitter,
                      Factor(of_device.per_instruction).most() * Factor(of_device.per_step).most());
  for (const SlowDown& slow : conditions.slow_downs) stretched *= std::max(1.0, slow.factor);
  return jitter * stretched;
}

// ---- the runs

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
        device_steps_(program.devices.size()),
        device_ends_(program.devices.size(), std::vector<Nanoseconds>(steps_)) {
    if (!conditions.slow_downs.empty()) {
      for (const program::DeviceProgram& device : program.devices)
        stretches_.insert(stretches_.end(), 2,
                          find_stretches(conditions.slow_downs, device.device));
      stretches_.resize(tasks_.graph.lanes());  // what is sent between two is not slowed
    }
    lanes_of_rank_.resize(program.devices.size());
    for (std::size_t rank = 0; rank < lanes_of_rank_.size(); ++rank)
      lanes_of_rank_[rank] = {2 * rank, 2 * rank + 1};
    for (std::size_t pair = 0; pair < tasks_.pairs.size(); ++pair)
      for (const Rank rank : {tasks_.pairs[pair].source, tasks_.pairs[pair].target})
        lanes_of_rank_[rank.index()].push_back(2 * program.devices.size() + pair);
  }

  Result<Outcomes> run() {
    for (int run = 0; run < runs_; ++run) {
      SplitMix64 random(conditions_.seed + static_cast<std::uint64_t>(run) * 0x9e3779b97f4a7c15U);
      const std::uint64_t key = random.next();
      key_ = {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
      MOTLEY_RETURN_IF_ERROR(run_once());
    }
    outcomes_.step = Distribution(std::move(step_times_));
    outcomes_.total = Distribution(std::move(totals_));
    for (std::vector<double>& times : device_steps_)
      outcomes_.device_step.emplace_back(std::move(times));
    return std::move(outcomes_);
  }

 private:
  /// One run: attempts from the last checkpoint on until all steps are done.
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
          *launch + (attempt > 0 ? nanoseconds(conditions_.recovery.restart) : 0);
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
      now = failure + nanoseconds(conditions_.recovery.detection);
    }
  }

  std::size_t count_finished(std::size_t wanted, Nanoseconds failure) const {
    std::size_t finished = 0;
    while (finished < wanted && step_ends_[finished] <= failure) ++finished;
    return finished;
  }

  /// The first time from `now` on at which no device is away; none if one stays away.
  std::optional<Nanoseconds> when_all_are_there(Nanoseconds now) const {
    for (bool moved = true; moved;) {
      moved = false;
      for (const Absence& absence : conditions_.absences) {
        if (nanoseconds(absence.from) > now || nanoseconds(absence.until) <= now) continue;
        if (std::isinf(absence.until.value)) return std::nullopt;
        now = nanoseconds(absence.until);
        moved = true;
      }
    }
    return now;
  }

  Nanoseconds next_absence(Nanoseconds now) const {
    Nanoseconds first = INT64_MAX;
    for (const Absence& absence : conditions_.absences)
      if (nanoseconds(absence.from) >= now) first = std::min(first, nanoseconds(absence.from));
    return first;
  }

  void draw_durations(std::uint32_t attempt) {
    for (std::size_t rank = 0; rank < program_.devices.size(); ++rank) {
      const auto found = conditions_.jitter.find(program_.devices[rank].device);
      if (found == conditions_.jitter.end()) continue;
      const Factor of_step(found->second.per_step), of_instruction(found->second.per_instruction);
      for (std::size_t step = 0; step < steps_; ++step) {
        const std::array<std::uint32_t, 4> counter = {kWholeStep, static_cast<std::uint32_t>(step),
                                                      static_cast<std::uint32_t>(rank), attempt};
        const double whole = of_step.is_exact() ? 1 : of_step.of(draw_normals(counter, key_)[0]);
        draw_step(rank, counter, whole, of_instruction);
      }
    }
  }

  void draw_step(std::size_t rank, std::array<std::uint32_t, 4> counter, double whole,
                 const Factor& of_instruction) {
    const auto& instructions = program_.devices[rank].instructions;
    const std::size_t offset = counter[1] * tasks_.graph.tasks();
    std::array<double, 4> normals{};
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      if (i % 4 == 0 && !of_instruction.is_exact()) {
        counter[0] = static_cast<std::uint32_t>(i / 4);
        normals = draw_normals(counter, key_);
      }
      if (program::is_exchange(instructions[i])) continue;
      const std::size_t task = tasks_.tasks[rank][i].index();
      const auto exact = static_cast<double>(tasks_.graph.durations[task]);
      const double factor = of_instruction.is_exact() ? 1 : of_instruction.of(normals[i % 4]);
      graph_.durations[offset + task] = std::llround(exact * whole * factor);
    }
  }

  /// When each device and all of them have finished each step of an attempt.
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
  TaskGraph graph_;  // of all steps; durations change from attempt to attempt
  std::vector<std::vector<Stretch>> stretches_;          // by lane
  std::vector<std::vector<std::size_t>> lanes_of_rank_;  // those of pairs are of both
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
  MOTLEY_RETURN_IF_ERROR(ConditionsCheck(program).check(conditions));
  MOTLEY_ASSIGN(ProgramTasks tasks, lay_out_program(program, cost));
  MOTLEY_RETURN_IF_ERROR(check_steps(tasks, options.steps, most_factor(conditions)));
  return ManyRuns(program, conditions, std::move(tasks), options).run();
}

}  // namespace motley::simulate
