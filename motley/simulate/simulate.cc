#include "motley/simulate/simulate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "motley/program/memory.h"
#include "motley/simulate/program_tasks.h"

namespace motley::simulate {
namespace {

using program::Instruction;

/// Builds the trace of a run of some steps, device by device.
class TraceMaker {
 public:
  /// `peaks`: of memory, by rank.
  TraceMaker(const program::Program& program, const ProgramTasks& tasks, const TaskTimes& times,
             std::int64_t steps, std::vector<Bytes> peaks)
      : program_(program), tasks_(tasks), times_(times), steps_(steps), peaks_(std::move(peaks)) {}

  trace::Trace make() {
    std::size_t instructions = 0;
    for (const auto& device : program_.devices) instructions += device.instructions.size();
    trace_.intervals.reserve(instructions * static_cast<std::size_t>(steps_));
    for (std::size_t rank = 0; rank < program_.devices.size(); ++rank) {
      trace_.devices.push_back(program_.devices[rank].device);
      add_names(program_.devices[rank]);
      ends_.assign(static_cast<std::size_t>(steps_), 0);
      add_lane(rank, Lane::kCompute);
      add_lane(rank, Lane::kTransfer);
      add_lane(rank, Lane::kPeer);
      add_marks(rank);
    }
    trace_.names = std::move(names_).take();
    return std::move(trace_);
  }

 private:
  /// Reads the device's program once: names, and the instructions of each lane.
  void add_names(const program::DeviceProgram& device) {
    names_.add_device();
    for (auto& lane : lanes_) lane.clear();
    for (std::size_t i = 0; i < device.instructions.size(); ++i) {
      const Instruction& instruction = device.instructions[i];
      name_.assign(instruction.op);
      if (!instruction.overload.empty()) name_.append(".").append(instruction.overload);
      if (!instruction.label.empty()) name_.append(" ").append(instruction.label);
      names_.add(name_);
      const std::int64_t moved = program::is_exchange(instruction)
                                     ? program::exchanged_bytes(device, instruction).value
                                     : 0;
      lanes_[static_cast<std::size_t>(instruction.lane)].push_back(
          {InstructionId(static_cast<std::int64_t>(i)), moved});
    }
  }

  void add_lane(std::size_t rank, Lane lane) {
    for (std::int64_t step = 0; step < steps_; ++step) {
      const auto offset = static_cast<std::size_t>(step) * tasks_.graph.tasks();
      Nanoseconds& step_end = ends_[static_cast<std::size_t>(step)];
      for (const auto& [instruction, moved] : lanes_[static_cast<std::size_t>(lane)]) {
        const std::size_t task = offset + tasks_.tasks[rank][instruction.index()].index();
        const Nanoseconds end = times_.ends[task];
        trace_.intervals.push_back(
            {static_cast<int>(rank), lane, step, instruction, times_.begins[task], end, moved});
        step_end = std::max(step_end, end);
      }
      // Strands are in instruction order; the peer lane is not.
      if (lane == Lane::kPeer)
        std::stable_sort(
            trace_.intervals.end() -
                static_cast<std::ptrdiff_t>(lanes_[static_cast<std::size_t>(lane)].size()),
            trace_.intervals.end(),
            [](const trace::Interval& a, const trace::Interval& b) { return a.begin < b.begin; });
    }
  }

  /// Adds step marks: a step ends with the device's last instruction, and the next begins.
  void add_marks(std::size_t rank) {
    const std::int64_t peak = peaks_[rank].value;
    Nanoseconds begin = 0;
    for (std::int64_t step = 0; step < steps_; ++step) {
      const Nanoseconds end = ends_[static_cast<std::size_t>(step)];
      trace_.steps.push_back({static_cast<int>(rank), step, begin, end, peak});
      begin = end;
    }
  }

  const program::Program& program_;
  const ProgramTasks& tasks_;
  const TaskTimes& times_;
  const std::int64_t steps_;
  const std::vector<Bytes> peaks_;
  trace::Trace trace_;
  trace::NamePool names_;
  std::string name_;
  struct InLane {
    InstructionId instruction;
    std::int64_t moved;  // bytes
  };
  std::array<std::vector<InLane>, 3> lanes_;  // of this device
  std::vector<Nanoseconds> ends_;             // of this device's steps
};

}  // namespace

Result<trace::Trace> simulate(const program::Program& program, const cost::CostModel& cost,
                              const SimulateOptions& options) {
  MOTLEY_ASSIGN(ProgramTasks tasks, lay_out_program(program, cost, options.stand_ins));
  const int steps = std::max(0, options.steps);
  MOTLEY_RETURN_IF_ERROR(check_steps(tasks, steps));
  const auto times = steps == 1 ? find_times(tasks.graph) : find_times(repeat_steps(tasks, steps));
  if (!times) return tl::make_unexpected(deadlock_error(program, tasks, times.error()));
  std::vector<Bytes> peaks = options.peaks;
  for (std::size_t rank = peaks.size(); rank < program.devices.size(); ++rank)
    peaks.push_back(program::find_memory_peak(program.devices[rank], tasks.scratch[rank]).total);
  return TraceMaker(program, tasks, *times, steps, std::move(peaks)).make();
}

}  // namespace motley::simulate
