// Measures simulation, and resimulation after an operator group has moved: a data-parallel step,
// 10^3 to 10^6 instructions, 8 to 1,024 devices, one core. Usage: bench_simulator OUT.json.
#include <fmt/format.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <new>

#include "motley/base/check.h"
#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/random.h"
#include "motley/base/statistics.h"
#include "motley/simulate/program_tasks.h"
#include "motley/simulate/resimulation.h"
#include "motley/simulate/simulate.h"

namespace {

/// Heap in use through operator new, and its peak since the last reset.
std::size_t heap_now = 0, heap_most = 0;

}  // namespace

void* operator new(std::size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  heap_now += malloc_usable_size(memory);
  heap_most = std::max(heap_most, heap_now);
  return memory;
}
void operator delete(void* memory) noexcept {
  heap_now -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }

namespace motley {
namespace {

using simulate::LaneId, simulate::Resimulation, simulate::TaskId;

constexpr int kPerBucket = 60, kRepeats = 5, kMoves = 200, kGroup = 20;

/// Compute takes a microsecond per instruction, more on later devices; sums take 100.
class BenchCost : public cost::CostModel {
 public:
  Result<Times> times(const program::DeviceProgram& device) const override {
    const double rank = static_cast<double>(device.first_sample);
    return Times{{device.instructions.size(), Seconds(1e-6 * (1 + rank / 64))}, {}};
  }
  Result<Seconds> collective_time(std::string_view, Bytes,
                                  const std::vector<std::string>&) const override {
    return Seconds(100e-6);
  }
};

/// Makes a chain of products; each kPerBucket-th is summed meanwhile and awaited a bucket later.
program::DeviceProgram make_device(int rank, int instructions) {
  program::DeviceProgram device{fmt::format("n{}:0", rank), 1, rank, {}, {}};
  device.buffers.push_back({program::BufferKind::kInput, DType::kF32, {32, 256}, "x", {}});
  device.instructions.push_back(
      {Lane::kCompute, "motley::load", "", {{std::int64_t{0}}}, {BufferId(0)}});
  InstructionId running;
  while (static_cast<int>(device.instructions.size()) < instructions) {
    const auto now = static_cast<std::int64_t>(device.instructions.size());
    const BufferId last(static_cast<std::int64_t>(device.buffers.size()) - 1);
    if (now % kPerBucket == 0) {
      program::Instruction sum{Lane::kTransfer, "motley::all_reduce", "", {{last}}};
      sum.group = GroupId(0);
      sum.waits = {InstructionId(now - 1)};
      sum.label = fmt::format("bucket {}", now / kPerBucket);
      device.instructions.push_back(std::move(sum));
      running = InstructionId(now);
    }
    const bool after_sum = running == InstructionId(now);
    device.buffers.push_back({program::BufferKind::kTemporary, DType::kF32, {32, 256}, "", {}});
    const BufferId next(last.value + 1);
    program::Instruction product{Lane::kCompute, "aten::mm", "", {{BufferId(0)}}, {next}};
    if (!after_sum) product.arguments.push_back({last});
    if (!after_sum && now % kPerBucket == kPerBucket - 1 && !running.is_none())
      product.waits = {std::exchange(running, {})};
    product.label = fmt::format("transformer.h.{}.attn", now / kPerBucket);
    device.instructions.push_back(std::move(product));
  }
  return device;
}

program::Program make_program(int devices, int instructions) {
  program::Program result;
  result.global_batch = devices;
  result.groups.resize(1);
  for (int rank = 0; rank < devices; ++rank) {
    result.groups[0].members.emplace_back(rank);
    result.devices.push_back(make_device(rank, instructions / devices));
  }
  return result;
}

/// Returns processor time of this thread, which other load does not lengthen.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double seconds_of(const std::function<void()>& run) {
  const double begin = processor_seconds();
  run();
  return processor_seconds() - begin;
}

double median_seconds(const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) times.push_back(seconds_of(run));
  return upper_median(std::move(times));
}

/// A run of instructions moved to another compute lane: half as long, with a transfer each way.
struct Move {
  std::vector<TaskId> tasks;
  LaneId from, to;
  TaskId before_from, before_to;  // next task in each lane
};

Move draw_move(const simulate::ProgramTasks& tasks, const program::Program& program,
               SplitMix64& random) {
  const std::size_t from = random.below(program.devices.size());
  const std::size_t to =
      (from + 1 + random.below(program.devices.size() - 1)) % program.devices.size();
  const auto& instructions = program.devices[from].instructions;
  Move move{
      {}, simulate::lane_of(from, Lane::kCompute), simulate::lane_of(to, Lane::kCompute), {}, {}};
  std::size_t i = random.below(instructions.size() - 2 * kGroup);
  for (; move.tasks.size() < kGroup; ++i)
    if (instructions[i].lane == Lane::kCompute) move.tasks.push_back(tasks.tasks[from][i]);
  while (instructions[i].lane != Lane::kCompute) ++i;
  move.before_from = tasks.tasks[from][i];
  move.before_to = tasks.tasks[to][i];
  return move;
}

/// Moves the group, measures the time, and moves it back.
double seconds_of_move(Resimulation& simulation, const Move& move, std::size_t& looked_at) {
  std::vector<simulate::Nanoseconds> before;
  for (const TaskId task : move.tasks)
    before.push_back(simulation.end(task) - simulation.begin(task));
  TaskId there, back;
  const double seconds = seconds_of([&] {
    there = simulation.insert(move.from, move.tasks.front(), 5000);
    simulation.join(there, move.to, move.before_to);
    for (std::size_t i = 0; i < move.tasks.size(); ++i) {
      simulation.move(move.tasks[i], move.from, move.to, move.before_to);
      simulation.set_duration(move.tasks[i], before[i] / 2);
    }
    back = simulation.insert(move.from, move.before_from, 5000);
    simulation.join(back, move.to, move.before_to);
    MOTLEY_CHECK(simulation.update().has_value());
  });
  looked_at += simulation.looked_at();
  const auto full = simulate::find_times(simulation.graph());
  MOTLEY_CHECK(full && full->end == simulation.end());
  simulation.remove(there);
  simulation.remove(back);
  for (std::size_t i = 0; i < move.tasks.size(); ++i) {
    simulation.move(move.tasks[i], move.to, move.from, move.before_from);
    simulation.set_duration(move.tasks[i], before[i]);
  }
  MOTLEY_CHECK(simulation.update().has_value());
  return seconds;
}

Result<Json> measure(int devices, int size) {
  const program::Program program = make_program(devices, size);
  const BenchCost cost;
  const std::size_t before = heap_now;
  heap_most = heap_now;
  MOTLEY_ASSIGN(const trace::Trace trace, simulate::simulate(program, cost));
  const auto instructions = static_cast<double>(trace.intervals.size());
  const double bytes = static_cast<double>(heap_most - before) / instructions;
  const double seconds = median_seconds([&] { (void)simulate::simulate(program, cost); });
  MOTLEY_ASSIGN(const simulate::ProgramTasks tasks, simulate::lay_out_program(program, cost));
  const double run_s = median_seconds([&] { (void)simulate::find_times(tasks.graph); });
  Resimulation simulation = *Resimulation::start(tasks.graph);
  SplitMix64 random(1);
  std::vector<double> moves;
  std::size_t looked_at = 0;
  for (int i = 0; i < (size > 100000 ? kMoves / 10 : kMoves); ++i)
    moves.push_back(seconds_of_move(simulation, draw_move(tasks, program, random), looked_at));
  const double worst = *std::max_element(moves.begin(), moves.end());
  const double again = upper_median(moves);
  fmt::print("{:>13}{:>9}{:>11.5f}{:>12.2f}{:>12.2f}{:>8.0f}{:>15.6f}{:>11.6f}{:>12}\n",
             trace.intervals.size(), devices, seconds, instructions / seconds / 1e6,
             instructions / run_s / 1e6, bytes, again, worst, looked_at / moves.size());
  return Json{{"instructions", trace.intervals.size()},
              {"devices", devices},
              {"seconds", seconds},
              {"run_s", run_s},
              {"bytes_per_instruction", bytes},
              {"resimulate_s", again},
              {"resimulate_worst_s", worst}};
}

Result<void> run(const std::string& path) {
  fmt::print("{:>13}{:>9}{:>11}{:>12}{:>12}{:>8}{:>15}{:>11}{:>12}\n", "instructions", "devices",
             "seconds", "million/s", "run alone", "bytes", "resimulate_s", "worst", "looked at");
  Json rows = Json::array();
  for (const auto& [devices, size] : {std::pair{8, 1000},
                                      {8, 10000},
                                      {8, 100000},
                                      {8, 1000000},
                                      {64, 10000},
                                      {64, 100000},
                                      {64, 1000000},
                                      {1024, 100000},
                                      {1024, 1000000}}) {
    MOTLEY_ASSIGN(Json row, measure(devices, size));
    rows.push_back(std::move(row));
  }
  return write_file_atomic(path, Json{{"rows", rows}}.dump(2) + "\n");
}

}  // namespace
}  // namespace motley

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: bench_simulator OUT.json\n");
    return 2;
  }
  if (const auto done = motley::run(arguments[1]); !done) {
    fmt::print(stderr, "{}\n", done.error().message);
    return 1;
  }
  return 0;
}
