#include "motley/cost/kind_times.h"

#include <algorithm>
#include <limits>

#include "motley/cost/least_squares.h"

namespace motley::cost {
namespace {

/// What the instruction computes in: the dtype of its first result, else of its first argument.
DType dtype_of(const program::DeviceProgram& program, const program::Instruction& instruction) {
  if (!instruction.outputs.empty()) return program.buffer(instruction.outputs[0]).dtype;
  DType dtype = DType::kF32;
  bool is_first = true;
  program::for_each_buffer(instruction.arguments, [&](BufferId id) {
    if (is_first) dtype = program.buffer(id).dtype;
    is_first = false;
  });
  return dtype;
}

/// 1 / coefficient; a term that a fit found to cost nothing is infinitely fast.
double inverse(double coefficient) {
  return coefficient > 0 ? 1 / coefficient : std::numeric_limits<double>::infinity();
}

}  // namespace

Seconds kind_seconds(const cluster::PlanningKind& kind, DType dtype, const OperatorWork& work,
                     const KindEfficiency& efficiency) {
  if (work.launches == 0) return Seconds(0);
  double seconds = work.bytes / (kind.memory_bandwidth.value * efficiency.bytes);
  if (const auto rate = cluster::peak_rate(kind, dtype))
    seconds += work.flops / (rate->value * efficiency.flops);
  return Seconds(std::max(efficiency.launch.value * work.launches, seconds));
}

Result<KindEfficiency> fit_efficiency(const std::vector<KindSample>& samples) {
  std::vector<std::vector<double>> rows;
  std::vector<double> seconds;
  for (const KindSample& sample : samples) {
    rows.push_back(
        {static_cast<double>(sample.launches), sample.flop_seconds, sample.byte_seconds});
    seconds.push_back(sample.measured.value);
  }
  MOTLEY_ASSIGN(const std::vector<double> fitted, fit_relative(rows, seconds));
  return KindEfficiency{Seconds(fitted[0]), inverse(fitted[1]), inverse(fitted[2])};
}

std::vector<std::optional<TimeSource::Answer>> KindTimes::times(
    const program::DeviceProgram& program) const {
  const std::vector<OperatorWork> works = instruction_work(program, *graph_);
  std::vector<std::optional<Answer>> answers;
  for (std::size_t i = 0; i < works.size(); ++i)
    answers.push_back(Answer{
        kind_seconds(*kind_, dtype_of(program, program.instructions[i]), works[i], efficiency_),
        Bytes(0)});
  return answers;
}

}  // namespace motley::cost
