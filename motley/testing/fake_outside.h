#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "motley/control/outside.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"

namespace motley::control {

/// A clock that advances by a fixed time with each call.
class FakeClock : public Clock {
 public:
  explicit FakeClock(Seconds tick = Seconds(0)) : tick_(tick) {}
  Seconds steady() const override { return now_ += tick_; }
  Seconds calendar() const override { return Seconds(1e9); }

 private:
  Seconds tick_;
  mutable Seconds now_;
};

/// Records its calls. Requests a stop after step `stop_after`, unless that is negative.
class RecordingListener : public Listener {
 public:
  void note(const std::string& line) override { notes.push_back(line); }
  Result<void> phase(Phase phase, const std::function<std::string()>& text) override {
    phases.emplace_back(phase, text());
    return {};
  }
  Wish step(const StepReport& report) override {
    steps.push_back(report);
    return report.step == stop_after ? Wish::kStop : Wish::kGoOn;
  }

  std::vector<std::string> notes;
  std::vector<std::pair<Phase, std::string>> phases;
  std::vector<StepReport> steps;
  std::int64_t stop_after = -1;
};

/// Workers without processes. An instruction of the compute lane takes `per_instruction` seconds
/// plus `per_byte` for each byte it writes; a step takes the sum over the device's speed, and 60 us
/// more with a pause. A sum over n devices takes 100 us (n - 1) plus 1 ns per byte. A training
/// plays `events` unless stopped, and ends as `outcome`.
class FakeWorkers : public Workers {
 public:
  Result<std::string> torch_version() const override { return torch; }

  Result<std::vector<std::vector<run::OpTime>>> time_programs(
      const std::vector<TimingTask>& tasks) override {
    std::vector<std::vector<run::OpTime>> times;
    calls.push_back(tasks.size());
    for (const TimingTask& task : tasks) times.push_back(times_of(task));
    timed.insert(timed.end(), tasks.begin(), tasks.end());
    return times;
  }

  Result<run::MeasuredGroup> time_exchanges(const run::Job& job) override {
    groups.push_back(job);
    run::MeasuredGroup times{.backend = "gloo"};
    for (int rank = 0; beside && rank < static_cast<int>(job.devices.size()); ++rank)
      times.overlaps.push_back({rank, Seconds(1), Seconds(1 + *beside), Seconds(1 + *beside)});
    for (int ranks = 2; ranks <= static_cast<int>(job.devices.size()); ++ranks)
      for (const std::string_view op :
           {program::kAllReduce, program::kAllGather, program::kReduceScatter, program::kAllToAll})
        for (const std::int64_t bytes : {std::int64_t{1} << 10, std::int64_t{1} << 20})
          times.collectives.push_back(
              {std::string(op), "gloo", ranks, Bytes(bytes),
               Seconds(1e-4 * (ranks - 1) + 1e-9 * static_cast<double>(bytes)), 0.0, 3});
    return times;
  }

  run::JobOutcome train(const run::Job& job, const OnEvent& on_event, const Orders& orders,
                        const OnLoss&) override {
    jobs.push_back(job);
    for (const run::WorkerEvent& event : events) {
      while (orders) {
        std::optional<job::Order> order = orders();
        if (!order) break;
        if (auto* change = std::get_if<run::Change>(&*order)) changes.push_back(std::move(*change));
      }
      if (on_event(event) == Wish::kStop) return {.end = run::JobEnd::kStopped};
    }
    return outcome;
  }
  std::vector<run::Change> changes;  ///< requested ones

  Result<run::TakeoverState> take_over(const std::string&) override { return inherited; }
  Result<run::TakeoverState> inherited = usage_error("test", "there is none");
  Result<std::string> bring_left_checkpoint(const std::string&) override { return std::string(); }
  Result<void> reach_by(const std::string&) override { return {}; }
  Result<void> gather(const run::RankPlace&) override { return {}; }
  void end(int code) override { ended = code; }
  Result<void> gather_held(const std::string&) override { return {}; }
  std::vector<std::string> launched_hosts() const override { return {}; }
  std::optional<int> ended;  ///< code of the other ranks
  Result<FoundHosts> find_hosts(const std::vector<std::string>&, const Tell&) override {
    return found;
  }
  FoundHosts found;
  Result<std::map<std::string, Seconds>> clocks_ahead(const std::set<std::string>&) override {
    return clocks;
  }
  std::map<std::string, Seconds> clocks;

  Result<std::string> torch = "2.15";
  double per_instruction = 1e-5, per_byte = 0;
  std::optional<double> beside;  ///< compute beside an exchange takes 1 + this times as long
  std::map<std::string, double> slowness;  ///< by device: factor of its time
  std::vector<run::WorkerEvent> events;
  run::JobOutcome outcome{.end = run::JobEnd::kFinished};
  std::vector<TimingTask> timed;       ///< all requests
  std::vector<std::size_t> calls;      ///< their number in each call
  std::vector<run::Job> groups, jobs;  ///< all requests

 private:
  std::vector<run::OpTime> times_of(const TimingTask& task) const {
    std::vector<run::OpTime> times;
    const auto slow = slowness.find(task.device.name);
    const double times_slower = slow == slowness.end() ? 1 : slow->second;
    for (const TimedProgram& each : task.programs) {
      const program::DeviceProgram& program = each.device();
      double total = 0;
      for (const program::Instruction& instruction : program.instructions) {
        if (instruction.lane != Lane::kCompute) continue;
        double bytes = 0;
        for (const BufferId output : instruction.outputs)
          bytes += static_cast<double>(program.buffer(output).bytes().value);
        const double takes = times_slower * (per_instruction + per_byte * bytes);
        total += takes;
        if (task.what == TimingTask::What::kOperators)
          times.push_back({.key = program::cost_key(program, instruction),
                           .median = Seconds(takes),
                           .samples = 3});
      }
      if (task.what == TimingTask::What::kWholeSteps) {
        times.push_back(
            {.key = "step", .median = Seconds(total / task.device.speed), .samples = 3});
        times.push_back(
            {.key = "pause", .median = Seconds(60e-6 / task.device.speed), .samples = 3});
      }
    }
    return times;
  }
};

/// Returns a step event of a rank.
inline run::WorkerEvent step_event(int rank, std::int64_t step, double step_s, double compute_s,
                                   double loss = 0) {
  return {"step",
          rank,
          {{"step", step},
           {"loss", loss},
           {"step_s", step_s},
           {"compute_s", compute_s},
           {"peak_bytes", 1000 * (rank + 1)}}};
}

}  // namespace motley::control
