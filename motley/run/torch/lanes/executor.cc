#include "motley/run/torch/lanes/executor.h"

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <map>
#include <utility>

#include "motley/program/commit.h"
#include "motley/program/effects.h"
#include "motley/program/strands.h"
#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/lanes/device_clock.h"
#include "motley/run/torch/lanes/memory_meter.h"
#include "motley/run/torch/lanes/parts_clock.h"
#include "motley/run/torch/lanes/prepared_program.h"
#include "motley/run/torch/lanes/step_progress.h"
#include "motley/run/torch/lanes/streams.h"
#include "motley/run/torch/lanes/timeline.h"
#include "motley/run/torch/operators/frame.h"
#include "motley/run/torch/operators/tensors.h"

namespace motley::run {
namespace {

using program::DeviceProgram;
using program::Instruction;
using program::is_persistent;
using program::Strands;

/// Reads what a step reported into the frame.
void read_report(const Frame& frame, StepResult& result) {
  if (frame.loss.defined()) result.loss = read_number(frame.loss);
  for (const at::Tensor& metric : frame.metrics) result.metrics.push_back(read_number(metric));
  if (frame.gradient_norm.defined()) result.gradient_norm = read_number(frame.gradient_norm);
  if (frame.squares.defined()) {
    result.squares.emplace().whole = read_number(frame.squares);
    for (const auto& [samples, own] : frame.pieces)
      result.squares->pieces.push_back({samples, read_number(own)});
  }
  if (frame.stop.defined()) {
    const double wishes = read_number(frame.stop);
    result.change_requested = wishes >= kChangeWish;
    result.stop_requested = std::fmod(wishes, kChangeWish) > 0;
  }
}

/// Replaces the host's times, which tell when work was queued, by an asynchronous device's own.
void take_device_times(const Streams& streams, const std::vector<PreparedCompute>& compute,
                       trace::Trace& trace) {
  std::vector<int> ids;
  std::vector<bool> waits;
  std::map<std::size_t, std::size_t> place;
  for (const PreparedCompute& each : compute) {
    place[static_cast<std::size_t>(each.id)] = ids.size();
    ids.push_back(each.id);
    waits.push_back(!each.waits.empty());
  }
  std::int64_t step = -1, first = 0;
  std::vector<Streams::Span> spans;
  for (trace::Interval& interval : trace.intervals) {
    if (interval.lane != Lane::kCompute) continue;
    if (interval.step != step) {  // they are ordered by step
      step = interval.step;
      first = interval.begin;
      spans = streams.spans(step, ids, waits);
    }
    if (spans.empty()) continue;
    const Streams::Span& span = spans[place[interval.instruction.index()]];
    interval.begin = std::max(first, span.begin);
    interval.end = std::max(interval.begin, span.end);
  }
}

/// Runs it, and makes an error of what PyTorch throws: `fault` gets code and message.
template <typename Run, typename Fault>
Result<void> run_guarded(const Run& run, const Fault& fault) {
  try {
    return run();
  } catch (const c10::OutOfMemoryError& error) {
    return fault("run.out-of-memory", error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return fault("run.operator", error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fault("run.operator", error.what());
  }
}

class TorchExecutor final : public Executor {
 public:
  TorchExecutor(const DeviceProgram& program, const ExecutorOptions& options,
                Communicator* communicator, StatusRecord* status)
      : program_(program),
        communicator_(communicator),
        status_(status),
        memory_(options.kind == "cuda" ? at::Device(at::kCUDA, options.local_index)
                                       : at::Device(at::kCPU),
                options.memory),
        frame_(memory_.device()),
        clock_(frame_.device.is_cpu() ? options.speed : 1.0),
        timeline_(program, options.timeline_steps),
        strands_(program::find_strands(program)),
        commit_(program::find_commit(program)),
        progress_(strands_.all.size(), program.instructions.size(), status),
        devices_(options.devices),
        scratch_(program.instructions.size()),
        measures_scratch_(options.measures_scratch),
        pauses_every_(options.pauses_every),
        shared_(options.shared) {
    frame_.faults = options.faults;
    if (options.measures_parts) parts_.emplace(program);
    frame_.seed = options.seed;
    if (!frame_.device.is_cpu())
      streams_ = std::make_unique<Streams>(
          frame_.device, program.instructions.size(),
          // One more for what is taken in behind the last step.
          static_cast<std::size_t>(std::max<std::int64_t>(options.timeline_steps, 1)) + 1);
    for (const Instruction& each : program.instructions) carries_ = carries_ || each.is_carried;
  }

  Result<void> prepare();
  const DeviceProgram& program() const override { return program_; }
  std::map<std::string, at::Tensor> persistent() override;
  Result<void> load(const TensorFiles& files, bool required) override;
  Result<StepResult> step(StepPlace place, const data::Batch& batch) override;
  Result<void> take_in() override;
  void request_stop() override { frame_.wish.fetch_or(kStopWish, std::memory_order_relaxed); }
  void request_change() override { frame_.wish.fetch_or(kChangeWish, std::memory_order_relaxed); }
  RecoveryState recovery_state() const override;
  Result<void> settle(Verdict verdict) override;
  void set_speed(double speed) override {
    if (frame_.device.is_cpu()) clock_.set_speed(speed);
  }
  trace::Trace timeline() const override {
    trace::Trace trace = timeline_.trace();
    if (streams_) take_device_times(*streams_, compute_, trace);
    return trace;
  }
  std::vector<Bytes> scratch() const override { return scratch_; }

 private:
  Result<void> prepare_lanes();
  void make_persistent();
  bool is_left_out(const PreparedCompute& compute) const {
    return (compute.counts && !frame_.counts_squares) || frame_.is_left_out(compute.is_carried);
  }
  Result<void> run_lanes(StepResult& result, std::int64_t begin);
  void copy_written();
  Result<void> end_alone();
  Result<void> run_compute(StepResult& result, std::int64_t begin);
  void run_one(const PreparedCompute& compute, std::int64_t& now);
  Result<void> wait_for_others(const PreparedCompute& compute, StepResult& result,
                               std::int64_t& now);
  void pause(StepResult& result, std::int64_t& now);
  void read_streams(StepResult& result);
  void finish(StepResult& result, std::int64_t begin);
  tl::unexpected<Error> fault(std::string code, const std::string& message) const;
  void set_status(int instruction) {
    if (status_ != nullptr)
      status_->compute_instruction.store(instruction, std::memory_order_relaxed);
  }

  const DeviceProgram& program_;
  Communicator* communicator_;
  StatusRecord* status_;
  MemoryMeter memory_;
  Frame frame_;
  DeviceClock clock_;
  Timeline timeline_;
  const program::Strands strands_;
  const std::optional<program::Commit> commit_;
  std::vector<at::Tensor> before_;  // the commit's written buffers before the step
  std::size_t at_ = 0;              // position in compute_ of the current instruction
  bool is_open_ = false;            // a failed step is neither completed nor undone
  bool carries_ = false;            // the program has instructions of the step before
  bool has_carried_ = false;        // the last step has left some to do
  Frame::Updating own_, last_;      // of this step and the one before
  StepProgress progress_;
  const std::vector<std::string> devices_;  // names by rank, as far as known
  std::vector<Bytes> scratch_;              // by instruction
  bool measures_scratch_;
  const std::size_t pauses_every_;
  const std::map<std::string, at::Tensor> shared_;
  std::optional<PartsClock> parts_;
  std::unique_ptr<Streams> streams_;
  std::vector<PreparedCompute> compute_;
  std::vector<int> temporaries_;              // not freed by any instruction
  const PreparedCompute* running_ = nullptr;  // for messages
  bool is_broken_ = false;
  std::vector<std::unique_ptr<ExchangeLane>> exchanges_;  // last: their threads use the others
};

Result<void> TorchExecutor::prepare() {
  // The graph contains its own backward pass; autograd would keep every temporary to the end.
  const c10::InferenceMode no_autograd;
  const auto run = [this]() -> Result<void> {
    MOTLEY_RETURN_IF_ERROR(prepare_lanes());
    make_persistent();
    return {};
  };
  return run_guarded(run, [this](const std::string& code, const char* message) {
    const bool is_full = code == "run.out-of-memory";
    return runtime_error(code, fmt::format("{}: {}{}", program_.device,
                                           is_full ? "while placing parameters: " : "", message));
  });
}

Result<void> TorchExecutor::prepare_lanes() {
  MOTLEY_ASSIGN(PreparedProgram made, prepare_program(program_, strands_, frame_.device, devices_));
  frame_.values.resize(program_.buffers.size());
  compute_ = std::move(made.compute);
  temporaries_ = std::move(made.temporaries);
  for (std::size_t strand = Strands::kTransfer; strand < made.exchanges.size(); ++strand)
    exchanges_.push_back(std::make_unique<ExchangeLane>(
        strand, std::move(made.exchanges[strand]),
        ExchangeContext{&frame_, communicator_, status_, &timeline_, streams_.get(), &progress_,
                        parts_ ? parts_->exchanges() : nullptr}));
  return {};
}

void TorchExecutor::make_persistent() {
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const program::Buffer& buffer = program_.buffers[i];
    if (!is_persistent(buffer.kind)) continue;
    const auto shared = shared_.find(buffer.name);
    // Zeros, not empty: pages exist, and are counted, before the first step instead of during it.
    frame_.values[i] =
        shared != shared_.end()
            ? shared->second
            : at::zeros(buffer.shape,
                        at::TensorOptions(frame_.device).dtype(scalar_type(buffer.dtype)));
  }
}

std::map<std::string, at::Tensor> TorchExecutor::persistent() {
  std::map<std::string, at::Tensor> tensors;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i)
    if (is_persistent(program_.buffers[i].kind))
      tensors.emplace(program_.buffers[i].name, frame_.values[i]);
  return tensors;
}

Result<void> TorchExecutor::load(const TensorFiles& files, bool required) {
  const c10::InferenceMode no_autograd;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const program::Buffer& buffer = program_.buffers[i];
    if (!is_persistent(buffer.kind) || shared_.contains(buffer.name)) continue;
    program::Buffer wanted = buffer;
    if (!files.has(wanted.name)) wanted.name = buffer.tensor();
    // A new training's file has no optimizer states: they stay zero.
    if (!files.has(wanted.name) && (!required || program::may_be_new(buffer.kind))) continue;
    at::Tensor host = frame_.device.is_cpu() ? frame_.values[i] : allocate(buffer, at::kCPU);
    MOTLEY_RETURN_IF_ERROR(
        files.read(wanted, {static_cast<std::byte*>(host.mutable_data_ptr()), host.nbytes()}));
    if (!frame_.device.is_cpu()) frame_.values[i].copy_(host);
  }
  return {};
}

Result<StepResult> TorchExecutor::step(StepPlace at, const data::Batch& batch) {
  if (is_broken_) return runtime_error("run.stopped", "an earlier step failed");
  const c10::InferenceMode no_autograd;
  last_ = std::exchange(own_, {at.step, at.lr_factor});
  frame_.step = at.step;
  frame_.runs_own = true;
  frame_.runs_carried = has_carried_;
  frame_.counts_squares = at.counts_squares;
  frame_.batch = &batch;
  StepResult result;
  const std::int64_t begin = monotonic_ns();
  timeline_.begin_step(at.step, begin);
  memory_.begin_step();
  if (streams_) streams_->begin_step(at.step);
  copy_written();
  MOTLEY_RETURN_IF_ERROR(run_lanes(result, begin));
  has_carried_ = carries_;
  finish(result, begin);
  return result;
}

Result<void> TorchExecutor::take_in() {
  if (!has_carried_) return {};
  if (is_broken_) return runtime_error("run.stopped", "an earlier step failed");
  const c10::InferenceMode no_autograd;
  last_ = own_;
  frame_.runs_own = false;
  frame_.runs_carried = true;
  StepResult unused;
  const std::int64_t begin = monotonic_ns();
  timeline_.begin_step(-1, begin);  // without an end: not kept
  if (streams_) streams_->begin_step(-1);
  MOTLEY_RETURN_IF_ERROR(run_lanes(unused, begin));
  has_carried_ = false;
  return {};
}

Result<void> TorchExecutor::run_lanes(StepResult& result, std::int64_t begin) {
  progress_.reset();
  clock_.start(begin);
  for (const auto& lane : exchanges_) lane->start_step();
  auto outcome =
      run_guarded([&] { return run_compute(result, begin); },
                  [this](const char* code, const char* message) { return fault(code, message); });
  if (!outcome) {
    // In this order: other lanes may wait for us or a peer, which must end before we wait for them.
    is_broken_ = is_open_ = true;
    progress_.fail(Strands::kCompute, outcome.error());
    if (communicator_ != nullptr) communicator_->close();
    for (const auto& lane : exchanges_) lane->finish_step();
    return tl::make_unexpected(progress_.fault());
  }
  return {};
}

Result<void> TorchExecutor::run_compute(StepResult& result, std::int64_t begin) {
  // An emulated device's clock may be behind or ahead of real time when a step begins.
  const std::int64_t own_begin = clock_.now_ns();
  std::int64_t now = std::max(begin, own_begin);
  const bool pauses = pauses_every_ > 0 && frame_.step % 2 == 1;
  for (std::size_t i = 0; i < compute_.size(); ++i) {
    const PreparedCompute& compute = compute_[i];
    running_ = &compute;
    at_ = i;
    set_status(compute.id);
    if (pauses && i % pauses_every_ == 0) pause(result, now);
    if (!compute.waits.empty()) MOTLEY_RETURN_IF_ERROR(wait_for_others(compute, result, now));
    run_one(compute, now);
    if (parts_ && !streams_ && parts_->is_marked(compute.id))
      parts_->mark(compute.id,
                   static_cast<double>(clock_.now_ns() - own_begin) * 1e-9 - result.wait_s);
  }
  clock_.catch_up();
  for (const auto& lane : exchanges_)
    if (!lane->finish_step()) return tl::make_unexpected(StepProgress::stopped());
  // Faults of asynchronous kernels show here at the latest, as this step's.
  if (streams_) streams_->end_step();
  read_report(frame_, result);
  return {};
}

/// Copies what a step overwrites before it is decided.
void TorchExecutor::copy_written() {
  if (!commit_ || commit_->written.empty()) return;
  before_.resize(commit_->written.size());
  for (std::size_t k = 0; k < before_.size(); ++k) {
    const at::Tensor& now = frame_.values[commit_->written[k].index()];
    if (before_[k].defined())
      before_[k].copy_(now);
    else
      before_[k] = now.clone();
  }
}

Executor::RecoveryState TorchExecutor::recovery_state() const {
  if (!is_open_) return RecoveryState::kBetween;
  if (!commit_) return RecoveryState::kBroken;
  const auto sum = static_cast<int>(commit_->at);
  if (progress_.last(Strands::kTransfer) >= sum) return RecoveryState::kBroken;
  std::vector<int> wanted(strands_.all.size(), -1);
  for (std::size_t i = 0; i < commit_->at; ++i) wanted[strands_.of[i]] = static_cast<int>(i);
  bool is_ready = compute_[at_].id > sum;
  for (std::size_t strand = Strands::kTransfer; strand < wanted.size(); ++strand)
    is_ready = is_ready && progress_.last(strand) >= wanted[strand];
  return is_ready ? RecoveryState::kReady : RecoveryState::kBegun;
}

/// Completes a step that all have voted for, which needs no other rank.
Result<void> TorchExecutor::end_alone() {
  for (; at_ < compute_.size(); ++at_) {
    running_ = &compute_[at_];
    if (!is_left_out(compute_[at_])) compute_[at_].kernel(frame_);
    for (const int id : compute_[at_].frees) frame_.values[static_cast<std::size_t>(id)].reset();
  }
  return {};
}

Result<void> TorchExecutor::settle(Verdict verdict) {
  if (!is_open_) return {};
  const RecoveryState stands = recovery_state();
  if (stands == RecoveryState::kBroken ||
      (verdict == Verdict::kEnd && stands != RecoveryState::kReady))
    return runtime_error("run.unsettled", program_.device + ": a step cannot be " +
                                              (verdict == Verdict::kEnd ? "ended" : "undone"));
  const c10::InferenceMode no_autograd;
  try {
    if (verdict == Verdict::kEnd) {
      MOTLEY_RETURN_IF_ERROR(end_alone());
    } else if (commit_) {
      for (std::size_t k = 0; k < before_.size(); ++k)
        frame_.values[commit_->written[k].index()].copy_(before_[k]);
    }
  } catch (const std::exception& error) {
    return fault("run.operator", error.what());
  }
  for (std::size_t i = 0; i < program_.buffers.size(); ++i)
    if (!is_persistent(program_.buffers[i].kind)) frame_.values[i].reset();
  is_open_ = false;
  return {};
}

void TorchExecutor::run_one(const PreparedCompute& compute, std::int64_t& now) {
  frame_.meet_fault(compute.id);
  frame_.updating = compute.is_carried ? last_ : own_;
  if (is_left_out(compute)) {
    // What it frees is freed, if it could be there: only the report needs squares.
  } else if (measures_scratch_) {
    Bytes& scratch = scratch_[static_cast<std::size_t>(compute.id)];
    scratch = std::max(scratch, memory_.measure([&] { compute.kernel(frame_); }));
  } else {
    compute.kernel(frame_);
  }
  if (!frame_.is_left_out(compute.is_carried))
    for (const int id : compute.frees) frame_.values[static_cast<std::size_t>(id)].reset();
  clock_.charge();
  // On an emulated device the result is ready now; a thread that it wakes may take this processor.
  std::int64_t there = 0;
  if (streams_ &&
      (compute.signals || timeline_.is_on() || (parts_ && parts_->is_marked(compute.id))))
    streams_->mark(compute.id);
  if (compute.signals) {
    if (clock_.is_emulated()) there = clock_.now_ns();
    progress_.advance(Strands::kCompute, compute.id, there);
  }
  if (!timeline_.is_on()) return;
  const std::int64_t end = std::max(now, there != 0 ? there : clock_.about_now_ns());
  now = std::min(end, now + clock_.take_jumped_ns());
  timeline_.record(static_cast<std::size_t>(compute.id), now, end);
  now = end;
}

Result<void> TorchExecutor::wait_for_others(const PreparedCompute& compute, StepResult& result,
                                            std::int64_t& now) {
  const std::int64_t begin = clock_.now_ns();
  if (streams_) streams_->mark_halt(compute.id);  // before this thread blocks and the stream idles
  if (!progress_.wait_for_all(compute.waits)) return tl::make_unexpected(StepProgress::stopped());
  if (streams_) {
    for (const StrandWait& wait : compute.waits) streams_->wait_for(wait.id);
    streams_->mark_resumption(compute.id);
  }
  const std::int64_t end = clock_.resume(progress_.ready_ns(compute.waits));
  if (!streams_) result.wait_s += static_cast<double>(end - begin) * 1e-9;
  now = std::max(now, end);
  clock_.take_jumped_ns();  // it waited
  return {};
}

/// Waits as for a message that arrives a millisecond later.
void TorchExecutor::pause(StepResult& result, std::int64_t& now) {
  constexpr std::int64_t kPause = 1'000'000;
  const std::int64_t begin = clock_.now_ns();
  const std::int64_t there = std::max(begin, monotonic_ns()) + kPause;
  sleep_until_ns(there);
  clock_.resume(there);
  result.wait_s += static_cast<double>(there - begin) * 1e-9;
  now = there;
}

/// Reads how long the idle device waited and when it finished the instructions of parts.
void TorchExecutor::read_streams(StepResult& result) {
  for (const PreparedCompute& compute : compute_) {
    if (!compute.waits.empty())
      result.wait_s += static_cast<double>(streams_->halted(compute.id)) * 1e-9;
    if (parts_ && parts_->is_marked(compute.id))
      parts_->mark(compute.id,
                   static_cast<double>(streams_->done_after(compute.id)) * 1e-9 - result.wait_s);
  }
}

void TorchExecutor::finish(StepResult& result, std::int64_t begin) {
  for (const int id : temporaries_) frame_.values[static_cast<std::size_t>(id)].reset();
  frame_.forget_report();
  set_status(-1);
  if (streams_) {
    measures_scratch_ = false;  // querying the allocator delays queued work
    read_streams(result);
  }
  const std::int64_t end = monotonic_ns();
  result.step_s = static_cast<double>(end - begin) * 1e-9;
  result.compute_s = result.step_s - result.wait_s;
  if (parts_) result.parts = parts_->parts();
  result.peak_bytes = memory_.step_peak();
  timeline_.end_step(end, result.peak_bytes);
}

tl::unexpected<Error> TorchExecutor::fault(std::string code, const std::string& message) const {
  const auto id = static_cast<std::size_t>(running_->id);
  return runtime_error(std::move(code), fmt::format("{}: {}: {}", program_.device,
                                                    place(program_.instructions[id], id), message));
}

}  // namespace

Result<std::unique_ptr<Executor>> Executor::create(const DeviceProgram& program,
                                                   const ExecutorOptions& options,
                                                   Communicator* communicator,
                                                   StatusRecord* status) {
  auto executor = std::make_unique<TorchExecutor>(program, options, communicator, status);
  MOTLEY_RETURN_IF_ERROR(executor->prepare());
  return executor;
}

}  // namespace motley::run
