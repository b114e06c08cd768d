// How fast programs are read and simulated: one data-parallel step on 1 to 64 devices, 1,500
// instructions each. Usage: bench_simulator OUT.json; prints one table.
#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/program/program_text.h"
#include "motley/simulate/simulate.h"

namespace motley {
namespace {

constexpr int kInstructions = 1500, kPerBucket = 60, kRepeats = 5;

/// Compute takes a microsecond an instruction, more on later devices; sums take 100.
class BenchCost : public cost::CostModel {
 public:
  Result<std::vector<Seconds>> compute_times(const program::DeviceProgram& device) const override {
    const double rank = static_cast<double>(device.first_sample);
    return std::vector<Seconds>(device.instructions.size(), Seconds(1e-6 * (1 + rank / 64)));
  }
  Result<Seconds> collective_time(std::string_view, Bytes,
                                  const std::vector<std::string>&) const override {
    return Seconds(100e-6);
  }
};

/// A chain of products; every kPerBucket-th result is summed over the devices while the chain goes
/// on, and waited for one bucket later.
program::DeviceProgram make_device(int rank) {
  using program::Lane;
  program::DeviceProgram device{fmt::format("n{}:0", rank), 1, rank, {}, {}};
  device.buffers.push_back({program::BufferKind::kInput, DType::kF32, {32, 256}, "x", {}});
  device.instructions.push_back(
      {Lane::kCompute, "motley::load", "", {{std::int64_t{0}}}, {BufferId(0)}});
  InstructionId running;
  while (static_cast<int>(device.instructions.size()) < kInstructions) {
    const auto now = static_cast<std::int64_t>(device.instructions.size());
    const BufferId last(static_cast<std::int64_t>(device.buffers.size()) - 1);
    if (now % kPerBucket == 0) {
      program::Instruction sum{Lane::kTransfer, "motley::all_reduce", "", {{last}}};
      sum.group = GroupId(0);
      sum.waits = {InstructionId(now - 1)};
      sum.label = "bucket";
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
    product.label = "h.3.attn";
    device.instructions.push_back(std::move(product));
  }
  return device;
}

program::Program make_program(int devices) {
  program::Program result;
  result.global_batch = devices;
  result.groups.resize(1);
  for (int rank = 0; rank < devices; ++rank) {
    result.groups[0].members.emplace_back(rank);
    result.devices.push_back(make_device(rank));
  }
  return result;
}

double median_seconds(const std::function<void()>& run) {
  std::vector<double> times;
  for (int i = 0; i < kRepeats; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[kRepeats / 2];
}

std::size_t heap_in_use() {
  const auto heap = mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

Result<Json> measure(int devices, int steps) {
  const std::string text = program::print_program(make_program(devices));
  MOTLEY_ASSIGN(const program::Program program, program::parse_program(text, "bench"));
  const double parse_s = median_seconds([&] { (void)program::parse_program(text, "bench"); });
  const BenchCost cost;
  const std::size_t before = heap_in_use();
  MOTLEY_ASSIGN(const trace::Trace trace, simulate::simulate(program, cost, {.steps = steps}));
  const std::size_t held = heap_in_use() - before;
  const double seconds =
      median_seconds([&] { (void)simulate::simulate(program, cost, {.steps = steps}); });
  const auto instructions = static_cast<double>(trace.intervals.size());
  fmt::print("{:>8}{:>7}{:>14}{:>11.4f}{:>18.2f}{:>8.0f}{:>10.4f}\n", devices, steps,
             trace.intervals.size(), seconds, instructions / seconds / 1e6,
             static_cast<double>(held) / instructions, parse_s);
  return Json{{"instructions", trace.intervals.size()},
              {"devices", devices},
              {"steps", steps},
              {"seconds", seconds},
              {"bytes_per_instruction", static_cast<double>(held) / instructions},
              {"parse_s", parse_s}};
}

Result<void> run(const std::string& path) {
  fmt::print("{:>8}{:>7}{:>14}{:>11}{:>18}{:>8}{:>10}\n", "devices", "steps", "instructions",
             "seconds", "million a second", "bytes", "parse_s");
  Json rows = Json::array();
  for (const auto& [devices, steps] : {std::pair{1, 1}, {3, 1}, {3, 20}, {64, 1}, {64, 10}}) {
    MOTLEY_ASSIGN(Json row, measure(devices, steps));
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
