#include "motley/run/torch/lanes/profile_run.h"

#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "motley/base/dtype.h"
#include "motley/base/random.h"
#include "motley/base/statistics.h"
#include "motley/program/effects.h"
#include "motley/program/program_text.h"
#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/lanes/executor.h"
#include "motley/run/torch/lanes/timeline.h"
#include "motley/run/torch/operators/tensors.h"

namespace motley::run {

namespace {

/// Returns small floats of both signs, or zeros and ones, in any dtype.
at::Tensor made_up(const program::Buffer& buffer, SplitMix64& random) {
  at::Tensor host = at::Tensor(
      allocate(program::Buffer{buffer.kind, DType::kF32, buffer.shape}, at::Device(at::kCPU)));
  float* values = host.mutable_data_ptr<float>();
  const bool is_real = is_floating(buffer.dtype) || is_complex(buffer.dtype);
  for (std::int64_t i = 0; i < host.numel(); ++i) {
    const float drawn = static_cast<float>(random.uniform());
    values[i] = is_real ? 0.2f * drawn - 0.1f : (drawn < 0.5f ? 0.0f : 1.0f);
  }
  return host.to(scalar_type(buffer.dtype));
}

/// Synthetic samples: one of each input of the program, read again and again.
class MadeUpBatch final : public data::Batch {
 public:
  MadeUpBatch(const program::DeviceProgram& program, SplitMix64& random)
      : samples_(program.samples) {
    for (const program::Instruction& instruction : program.instructions) {
      if (instruction.op != "motley::load") continue;
      const auto* input = std::get_if<std::int64_t>(&instruction.arguments.at(0).value);
      if (input == nullptr) continue;
      inputs_[static_cast<std::size_t>(*input)] =
          made_up(program.buffer(instruction.outputs.at(0)), random);
    }
  }
  std::int64_t samples() const override { return samples_; }
  std::int64_t sample_bytes(std::size_t input) const override {
    return static_cast<std::int64_t>(inputs_.at(input).nbytes()) /
           std::max<std::int64_t>(samples_, 1);
  }
  void read(std::size_t input, std::int64_t place, std::byte* out) const override {
    const auto* data = static_cast<const std::byte*>(inputs_.at(input).const_data_ptr());
    std::memcpy(out, data + place * sample_bytes(input),
                static_cast<std::size_t>(sample_bytes(input)));
  }

 private:
  std::int64_t samples_;
  std::map<std::size_t, at::Tensor> inputs_;
};

void fill_parameters(const program::DeviceProgram& program, Executor& executor,
                     SplitMix64& random) {
  auto tensors = executor.persistent();
  for (const program::Buffer& buffer : program.buffers) {
    const auto found = tensors.find(buffer.name);
    if (found == tensors.end() || program::may_be_new(buffer.kind)) continue;
    // Variances among the model's buffers must be positive.
    if (buffer.kind == program::BufferKind::kModelBuffer) {
      found->second.fill_(1);
    } else if (buffer.kind == program::BufferKind::kParameter) {
      found->second.copy_(made_up(buffer, random));
    }
  }
}

std::map<std::string, Bytes> scratch_by_key(const program::DeviceProgram& program,
                                            const std::vector<Bytes>& scratch) {
  std::map<std::string, Bytes> most;
  for (std::size_t i = 0; i < scratch.size(); ++i) {
    Bytes& of_key = most[program::cost_key(program, program.instructions[i])];
    of_key = std::max(of_key, scratch[i]);
  }
  return most;
}

constexpr std::size_t kPauses = 16;  // per step that has pauses

/// Removes the first quarter, in which the others are still starting.
void leave_out_first(std::vector<double>& seconds) {
  seconds.erase(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 4));
}

/// Runs steps of the program on synthetic samples; calls `each` with the result of every step after
/// the warm-up. Returns the executor, which holds their timeline.
template <typename Each>
Result<std::unique_ptr<Executor>> run_steps(const program::DeviceProgram& program,
                                            const ExecutorOptions& executor_options,
                                            const ProfileRunOptions& options, const Each& each) {
  MOTLEY_ASSIGN(auto executor, Executor::create(program, executor_options, nullptr, nullptr));
  SplitMix64 random(1);
  const c10::InferenceMode no_autograd;
  const MadeUpBatch batch(program, random);
  fill_parameters(program, *executor, random);
  std::int64_t begin = 0;
  for (std::int64_t step = 0; step < options.warm_up + options.max_steps; ++step) {
    if (step == options.warm_up) begin = monotonic_ns();
    const double spent = static_cast<double>(monotonic_ns() - begin) * 1e-9;
    if (step >= options.warm_up + options.min_steps && spent > options.budget.value) break;
    MOTLEY_ASSIGN(const StepResult result, executor->step(step, batch));
    if (step >= options.warm_up) each(result);
  }
  return executor;
}

}  // namespace

Result<WholeStepTimes> time_whole_steps(const program::DeviceProgram& program, double speed,
                                        const ProfileRunOptions& options) {
  ExecutorOptions executor_options;
  executor_options.kind = options.kind;
  executor_options.local_index = options.local_index;
  executor_options.speed = speed;
  const auto instructions = static_cast<std::size_t>(
      std::count_if(program.instructions.begin(), program.instructions.end(),
                    [](const program::Instruction& each) { return each.lane == Lane::kCompute; }));
  executor_options.pauses_every = std::max<std::size_t>(1, instructions / kPauses);
  std::vector<double> plain, paused;
  std::int64_t step = options.warm_up;
  MOTLEY_RETURN_IF_ERROR(
      run_steps(program, executor_options, options, [&](const StepResult& result) {
        (step++ % 2 == 0 ? plain : paused).push_back(result.compute_s);
      }));
  for (std::vector<double>* times : {&plain, &paused}) leave_out_first(*times);
  const std::string samples = std::to_string(program.samples);
  const auto count = static_cast<std::int64_t>(plain.size());
  const Scatter scatter = find_scatter(std::move(plain));
  WholeStepTimes times;
  times.step = {"step " + samples, Seconds(scatter.middle), scatter.spread(), count, {}};
  times.pause = {"pause " + samples, Seconds(0), 0, static_cast<std::int64_t>(paused.size()), {}};
  const auto pauses =
      (instructions + executor_options.pauses_every - 1) / executor_options.pauses_every;
  if (!paused.empty() && pauses > 0) {
    const double more = median(std::move(paused)) - scatter.middle;
    times.pause.median = Seconds(std::max(0.0, more / static_cast<double>(pauses)));
  }
  return times;
}

Result<std::vector<OpTime>> profile_program(const program::DeviceProgram& program,
                                            const ProfileRunOptions& options) {
  ExecutorOptions executor_options;
  executor_options.kind = options.kind;
  executor_options.local_index = options.local_index;
  executor_options.timeline_steps = options.max_steps;
  executor_options.measures_scratch = true;
  MOTLEY_ASSIGN(const auto executor,
                run_steps(program, executor_options, options, [](const StepResult&) {}));
  trace::Trace trace = executor->timeline();
  std::erase_if(trace.intervals,
                [&](const trace::Interval& each) { return each.step < options.warm_up; });
  std::vector<OpTime> times = time_operators(program, trace, 0);
  const auto scratch = scratch_by_key(program, executor->scratch());
  for (OpTime& time : times) time.scratch = scratch.at(time.key);
  return times;
}

}  // namespace motley::run
