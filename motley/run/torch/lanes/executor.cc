#include "motley/run/torch/lanes/executor.h"

#include <ATen/ops/zeros.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <set>
#include <utility>

#include "motley/base/text.h"
#include "motley/program/commit.h"
#include "motley/program/effects.h"
#include "motley/program/parts.h"
#include "motley/program/square_count.h"
#include "motley/program/state_names.h"
#include "motley/program/strands.h"
#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/lanes/device_clock.h"
#include "motley/run/torch/lanes/exchange_lane.h"
#include "motley/run/torch/lanes/parts_clock.h"
#include "motley/run/torch/lanes/step_progress.h"
#include "motley/run/torch/lanes/streams.h"
#include "motley/run/torch/lanes/timeline.h"
#include "motley/run/torch/memory/allocator.h"
#include "motley/run/torch/operators/frame.h"
#include "motley/run/torch/operators/operator_call.h"
#include "motley/run/torch/operators/our_operators.h"
#include "motley/run/torch/operators/tensors.h"

namespace motley::run {

namespace {

using program::BufferKind;
using program::DeviceProgram;
using program::Instruction;
using program::is_persistent;
using program::Strands;

struct Compute {
  int id = 0;
  std::vector<StrandWait> waits;
  bool signals = false;  ///< an exchange waits for it
  bool counts = false;   ///< squares of gradients, which a step may skip
  Kernel kernel;
  std::vector<int> frees;
};

/// Keeps only the last wait for each strand, because a strand runs in order.
std::vector<StrandWait> last_waits(const Instruction& instruction,
                                   const program::Strands& strands) {
  std::vector<StrandWait> waits;
  for (const InstructionId id : instruction.waits) {
    const std::size_t strand = strands.of[id.index()];
    const auto known = std::find_if(waits.begin(), waits.end(),
                                    [&](const StrandWait& each) { return each.strand == strand; });
    if (known == waits.end()) {
      waits.push_back({strand, id.value});
    } else {
      known->id = std::max(known->id, int{id.value});
    }
  }
  return waits;
}

std::vector<int> freed(const Instruction& instruction) {
  std::vector<int> ids;
  for (const BufferId id : instruction.frees) ids.push_back(id.value);
  return ids;
}

/// Returns "^45 aten::mm (h.0.attn)".
std::string place(const Instruction& instruction, std::size_t id) {
  const std::string label = instruction.label.empty() ? "" : " (" + instruction.label + ")";
  return fmt::format("^{} {}{}", id, instruction.full_name(), label);
}

// Before anything is allocated: missing operators are reported in a second, all at once.
/// Returns an error that lists all operators of the program that do not exist.
Result<void> find_operators(const DeviceProgram& program) {
  std::set<std::string> missing;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.lane == Lane::kPeer) continue;  // sends and receives: already verified
    if (instruction.lane == Lane::kTransfer) {
      if (!program::is_collective(instruction.op)) missing.insert(instruction.full_name());
    } else if (instruction.op.starts_with("motley::")) {
      if (!is_our_operator(instruction.op)) missing.insert(instruction.full_name());
    } else if (!has_operator(instruction)) {
      missing.insert(instruction.full_name());
    }
  }
  if (missing.empty()) return {};
  return usage_error("run.missing-operator",
                     fmt::format("{}: {} operator{} that this engine does not have: {}; run with "
                                 "the PyTorch version that exported the model",
                                 program.device, missing.size(), missing.size() == 1 ? "" : "s",
                                 fmt::join(missing, ", ")));
}

Result<Compute> prepare_compute(const DeviceProgram& program, std::size_t id, at::Device device) {
  const Instruction& instruction = program.instructions[id];
  Compute compute;
  compute.id = static_cast<int>(id);
  compute.frees = freed(instruction);
  compute.counts = program::counts_squares(instruction);
  const bool is_ours = instruction.op.starts_with("motley::");
  auto kernel = is_ours ? make_our_operator(program, instruction, device)
                        : make_operator_call(instruction, device);
  if (!kernel)
    return with_context(program.device + ": " + place(instruction, id), std::move(kernel).error());
  compute.kernel = std::move(*kernel);
  return compute;
}

/// Complex numbers are exchanged as two real ones.
void count_pairs(Splits& splits) {
  for (Counts* counts : {&splits.sends, &splits.receives})
    for (std::int64_t& count : *counts) count *= 2;
  splits.cell *= 2;
}

PreparedExchange prepare_peer(const DeviceProgram& program, std::size_t id,
                              const std::vector<std::string>& devices) {
  const Instruction& instruction = program.instructions[id];
  const bool is_send = instruction.op == program::kSend;
  PreparedExchange exchange;
  exchange.id = static_cast<int>(id);
  exchange.frees = freed(instruction);
  exchange.op = instruction.op;
  exchange.peer = program::peer_of(instruction).value;
  const auto peer = static_cast<std::size_t>(exchange.peer);
  exchange.place =
      fmt::format("{}: {} {} {}", program.device, place(instruction, id), is_send ? "to" : "from",
                  peer < devices.size() ? devices[peer] : fmt::format("rank {}", exchange.peer));
  if (is_send) {
    exchange.buffer = std::get<BufferId>(instruction.arguments[0].value).value;
  } else {
    exchange.result = instruction.outputs[0].value;
    exchange.about = program.buffer(instruction.outputs[0]);
  }
  return exchange;
}

Result<PreparedExchange> prepare_transfer(const DeviceProgram& program, std::size_t id) {
  const Instruction& instruction = program.instructions[id];
  PreparedExchange transfer;
  transfer.id = static_cast<int>(id);
  transfer.frees = freed(instruction);
  transfer.place = program.device + ": " + place(instruction, id);
  transfer.op = instruction.op;
  const auto method = program::find_method(instruction);
  if (!method)
    return usage_error("run.bad-instruction", transfer.place + ": this engine has no such way");
  transfer.call = {instruction.group, *method};
  if (auto parts = program::find_exchange_parts(instruction)) {
    transfer.buffer = parts->value.value;
    transfer.result = parts->result.value;
    transfer.about = program.buffer(parts->result);
    transfer.splits = {std::move(parts->counts), std::move(parts->receives), parts->cell};
    if (is_complex(transfer.about.dtype)) count_pairs(transfer.splits);
    return transfer;
  }
  const auto* buffer = instruction.arguments.size() == 1
                           ? std::get_if<BufferId>(&instruction.arguments[0].value)
                           : nullptr;
  if (buffer == nullptr || transfer.op != program::kAllReduce)
    return usage_error("run.bad-instruction", transfer.place + ": the arguments do not fit");
  transfer.buffer = buffer->value;
  return transfer;
}

class TorchExecutor final : public Executor {
 public:
  TorchExecutor(const DeviceProgram& program, const ExecutorOptions& options,
                Communicator* communicator, StatusRecord* status)
      : program_(program),
        communicator_(communicator),
        status_(status),
        allocator_(CountingAllocator::install()),
        frame_(options.kind == "cuda" ? at::Device(at::kCUDA, options.local_index)
                                      : at::Device(at::kCPU)),
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
    if (options.memory && frame_.device.is_cpu()) allocator_.set_limit(options.memory);
    if (!frame_.device.is_cpu())
      streams_ = std::make_unique<Streams>(
          frame_.device, program.instructions.size(),
          static_cast<std::size_t>(std::max<std::int64_t>(options.timeline_steps, 1)));
  }

  Result<void> prepare();
  std::map<std::string, at::Tensor> persistent() override;
  Result<void> load(const TensorFiles& files, bool required) override;
  Result<StepResult> step(StepPlace place, const data::Batch& batch) override;
  void request_stop() override { frame_.wish.fetch_or(kStopWish, std::memory_order_relaxed); }
  void request_change() override { frame_.wish.fetch_or(kChangeWish, std::memory_order_relaxed); }
  RecoveryState recovery_state() const override;
  Result<void> settle(Verdict verdict) override;
  void set_speed(double speed) override {
    if (frame_.device.is_cpu()) clock_.set_speed(speed);
  }
  trace::Trace timeline() const override;
  std::vector<Bytes> scratch() const override { return scratch_; }

 private:
  Result<void> prepare_instructions();
  Result<void> allocate_persistent();
  void start_masters(const TensorFiles& files) override;
  void start_mirrored(const program::Buffer& mirror, const TensorFiles& files, at::Tensor& into);
  bool is_left_out(const Compute& compute) const {
    return compute.counts && !frame_.counts_squares;
  }
  void copy_written();
  Result<void> end_alone();
  Result<void> run_compute(StepResult& result, std::int64_t begin);
  void run_one(const Compute& compute, std::int64_t& now);
  void run_measured(const Compute& compute);
  Result<void> wait_for_others(const Compute& compute, StepResult& result, std::int64_t& now);
  void pause(StepResult& result, std::int64_t& now);
  void read_streams(StepResult& result);
  void finish(StepResult& result, std::int64_t begin);
  void reset_peak();
  std::int64_t peak() const;
  std::int64_t in_use() const;
  tl::unexpected<Error> fault(std::string code, const std::string& message) const;
  void set_status(int instruction) {
    if (status_ != nullptr)
      status_->compute_instruction.store(instruction, std::memory_order_relaxed);
  }

  const DeviceProgram& program_;
  Communicator* communicator_;
  StatusRecord* status_;
  CountingAllocator& allocator_;
  Frame frame_;
  DeviceClock clock_;
  Timeline timeline_;
  const program::Strands strands_;
  const std::optional<program::Commit> commit_;
  std::vector<at::Tensor> before_;  // the commit's written buffers before the step
  std::size_t at_ = 0;              // position in compute_ of the current instruction
  bool is_open_ = false;            // a failed step is neither completed nor undone
  StepProgress progress_;
  const std::vector<std::string> devices_;  // names by rank, as far as known
  std::vector<Bytes> scratch_;              // by instruction
  bool measures_scratch_;
  const std::size_t pauses_every_;
  const std::map<std::string, at::Tensor> shared_;
  std::optional<PartsClock> parts_;
  std::int64_t highest_ = 0;  // of this step; instructions reset the allocator's mark
  std::unique_ptr<Streams> streams_;
  std::vector<Compute> compute_;
  std::vector<int> temporaries_;      // not freed by any instruction
  const Compute* running_ = nullptr;  // for messages
  bool is_broken_ = false;
  std::vector<std::unique_ptr<ExchangeLane>> exchanges_;  // last: their threads use the others
};

Result<void> TorchExecutor::prepare() {
  MOTLEY_RETURN_IF_ERROR(find_operators(program_));
  // The graph contains its own backward pass; autograd would keep every temporary to the end.
  const c10::InferenceMode no_autograd;
  try {
    MOTLEY_RETURN_IF_ERROR(prepare_instructions());
    return allocate_persistent();
  } catch (const c10::OutOfMemoryError& error) {
    return runtime_error("run.out-of-memory",
                         fmt::format("{}: while placing parameters: {}", program_.device,
                                     error.what_without_backtrace()));
  } catch (const c10::Error& error) {
    return runtime_error("run.operator",
                         fmt::format("{}: {}", program_.device, error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return runtime_error("run.operator", fmt::format("{}: {}", program_.device, error.what()));
  }
}

Result<void> TorchExecutor::prepare_instructions() {
  frame_.values.resize(program_.buffers.size());
  std::vector<bool> signals(program_.instructions.size(), false);
  std::vector<std::vector<PreparedExchange>> exchanges(strands_.all.size());
  for (std::size_t id = 0; id < program_.instructions.size(); ++id) {
    const Instruction& instruction = program_.instructions[id];
    std::vector<StrandWait> waits = last_waits(instruction, strands_);
    if (instruction.lane == Lane::kCompute) {
      MOTLEY_ASSIGN(Compute compute, prepare_compute(program_, id, frame_.device));
      compute.waits = std::move(waits);
      compute_.push_back(std::move(compute));
      continue;
    }
    for (const StrandWait& wait : waits) signals[static_cast<std::size_t>(wait.id)] = true;
    PreparedExchange& exchange = exchanges[strands_.of[id]].emplace_back();
    if (instruction.lane == Lane::kPeer) {
      exchange = prepare_peer(program_, id, devices_);
    } else {
      MOTLEY_ASSIGN(exchange, prepare_transfer(program_, id));
    }
    exchange.waits = std::move(waits);
  }
  // Publishes progress only for instructions that others wait for: a store and a wake-up for each
  // instruction would slow steps of small operators.
  for (Compute& compute : compute_) compute.signals = signals[static_cast<std::size_t>(compute.id)];
  for (std::size_t strand = Strands::kTransfer; strand < exchanges.size(); ++strand)
    exchanges_.push_back(std::make_unique<ExchangeLane>(
        strand, std::move(exchanges[strand]),
        ExchangeContext{&frame_, communicator_, status_, &timeline_, streams_.get(), &progress_,
                        parts_ ? parts_->exchanges() : nullptr}));
  return {};
}

Result<void> TorchExecutor::allocate_persistent() {
  std::vector<bool> is_freed(program_.buffers.size(), false);
  for (const Instruction& instruction : program_.instructions)
    for (const BufferId id : instruction.frees) is_freed[id.index()] = true;
  for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
    const program::Buffer& buffer = program_.buffers[i];
    // Zeros, not empty: pages exist, and are counted, before the first step instead of during it.
    const auto shared = shared_.find(buffer.name);
    if (is_persistent(buffer.kind) && shared != shared_.end())
      frame_.values[i] = shared->second;
    else if (is_persistent(buffer.kind))
      frame_.values[i] = at::zeros(
          buffer.shape, at::TensorOptions(frame_.device).dtype(scalar_type(buffer.dtype)));
    else if (buffer.kind == BufferKind::kTemporary && !is_freed[i])
      temporaries_.push_back(static_cast<int>(i));
  }
  return {};
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

/// Starts a mirror of a master whose parameter is not here from the parameter's rows in the files.
void TorchExecutor::start_mirrored(const program::Buffer& mirror, const TensorFiles& files,
                                   at::Tensor& into) {
  program::Buffer parameter = mirror;
  parameter.name = mirror.tensor();
  parameter.name.resize(parameter.name.size() - program::kMasterSuffix.size());
  if (!files.has(parameter.name)) return;
  parameter.dtype = files.view(parameter.name).dtype;
  at::Tensor rows =
      at::zeros(parameter.shape, at::TensorOptions(at::kCPU).dtype(scalar_type(parameter.dtype)));
  if (files.read(parameter, {static_cast<std::byte*>(rows.mutable_data_ptr()), rows.nbytes()}))
    into.copy_(rows);
}

void TorchExecutor::start_masters(const TensorFiles& files) {
  const c10::InferenceMode no_autograd;
  constexpr std::string_view kSuffix = program::kMasterSuffix;
  std::map<std::string, at::Tensor> tensors = persistent();
  std::map<std::string, const program::Buffer*> about;
  for (const program::Buffer& buffer : program_.buffers)
    if (is_persistent(buffer.kind)) about[buffer.name] = &buffer;
  for (auto& [name, tensor] : tensors) {
    if (!name.ends_with(kSuffix) || files.has(about.at(name)->tensor())) continue;
    const std::string of = name.substr(0, name.size() - kSuffix.size());
    const auto here = tensors.find(of);
    if (here == tensors.end()) {  // only the mirror's original has the parameter
      start_mirrored(*about.at(name), files, tensor);
      continue;
    }
    at::Tensor parameter = here->second;
    if (parameter.numel() != tensor.numel()) {  // covers some rows of the local parameter
      const program::Part rows = about.at(name)->part.value();
      const auto& own = about.at(of)->part;
      const std::int64_t begin = own ? own->begin : 0;
      parameter = parameter.view({rows.before, -1, rows.after})
                      .narrow(1, rows.begin - begin, tensor.numel() / rows.before / rows.after);
    }
    tensor.copy_(parameter.reshape(tensor.sizes()));
  }
}

Result<StepResult> TorchExecutor::step(StepPlace at, const data::Batch& batch) {
  if (is_broken_) return runtime_error("run.stopped", "an earlier step failed");
  const c10::InferenceMode no_autograd;
  frame_.step = at.step;
  frame_.lr_factor = at.lr_factor;
  frame_.counts_squares = at.counts_squares;
  frame_.batch = &batch;
  progress_.reset();
  StepResult result;
  const std::int64_t begin = monotonic_ns();
  timeline_.begin_step(at.step, begin);
  reset_peak();
  highest_ = 0;
  if (streams_) streams_->begin_step(at.step);
  clock_.start(begin);
  copy_written();
  for (const auto& lane : exchanges_) lane->start_step();
  auto outcome = run_compute(result, begin);
  if (!outcome) {
    // In this order: other lanes may wait for us or a peer, which must end before we wait for them.
    is_broken_ = is_open_ = true;
    progress_.fail(Strands::kCompute, outcome.error());
    if (communicator_ != nullptr) communicator_->close();
    for (const auto& lane : exchanges_) lane->finish_step();
    return tl::make_unexpected(progress_.fault());
  }
  finish(result, begin);
  return result;
}

Result<void> TorchExecutor::run_compute(StepResult& result, std::int64_t begin) {
  // An emulated device's clock may be behind or ahead of real time when a step begins.
  const std::int64_t own_begin = clock_.now_ns();
  std::int64_t now = std::max(begin, own_begin);
  try {
    const bool pauses = pauses_every_ > 0 && frame_.step % 2 == 1;
    for (std::size_t i = 0; i < compute_.size(); ++i) {
      const Compute& compute = compute_[i];
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
    if (frame_.loss.defined()) result.loss = read_number(frame_.loss);
    for (const at::Tensor& metric : frame_.metrics) result.metrics.push_back(read_number(metric));
    if (frame_.gradient_norm.defined()) result.gradient_norm = read_number(frame_.gradient_norm);
    if (frame_.squares.defined()) {
      result.squares.emplace().whole = read_number(frame_.squares);
      for (const auto& [samples, own] : frame_.pieces)
        result.squares->pieces.push_back({samples, read_number(own)});
    }
    if (frame_.stop.defined()) {
      const double wishes = read_number(frame_.stop);
      result.change_requested = wishes >= kChangeWish;
      result.stop_requested = std::fmod(wishes, kChangeWish) > 0;
    }
    return {};
  } catch (const c10::OutOfMemoryError& error) {
    return fault("run.out-of-memory", error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return fault("run.operator", error.what_without_backtrace());
  } catch (const std::exception& error) {
    return fault("run.operator", error.what());
  }
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

// A GPU's allocator counts when memory is requested, not when the device uses it. Workspaces of
// cuDNN come from it too; cuBLAS keeps its own, which is not an operator's scratch.
void TorchExecutor::reset_peak() {
  if (streams_) {
    reset_device_peak(frame_.device);
  } else {
    allocator_.reset_peak();
  }
}

std::int64_t TorchExecutor::peak() const {
  return streams_ ? device_peak(frame_.device) : allocator_.peak();
}

std::int64_t TorchExecutor::in_use() const {
  return streams_ ? device_in_use(frame_.device) : allocator_.in_use();
}

void TorchExecutor::run_measured(const Compute& compute) {
  reset_peak();
  compute.kernel(frame_);
  const std::int64_t most = peak();
  Bytes& scratch = scratch_[static_cast<std::size_t>(compute.id)];
  scratch = std::max(scratch, Bytes(most - in_use()));
  highest_ = std::max(highest_, most);
}

void TorchExecutor::run_one(const Compute& compute, std::int64_t& now) {
  frame_.meet_fault(compute.id);
  if (is_left_out(compute)) {
    // Only the report needs its results; what it frees is freed.
  } else if (measures_scratch_) {
    run_measured(compute);
  } else {
    compute.kernel(frame_);
  }
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

Result<void> TorchExecutor::wait_for_others(const Compute& compute, StepResult& result,
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
  for (const Compute& compute : compute_) {
    if (!compute.waits.empty())
      result.wait_s += static_cast<double>(streams_->halted(compute.id)) * 1e-9;
    if (parts_ && parts_->is_marked(compute.id))
      parts_->mark(compute.id,
                   static_cast<double>(streams_->done_after(compute.id)) * 1e-9 - result.wait_s);
  }
}

void TorchExecutor::finish(StepResult& result, std::int64_t begin) {
  for (const int id : temporaries_) frame_.values[static_cast<std::size_t>(id)].reset();
  frame_.loss.reset();
  frame_.gradient_norm.reset();
  frame_.metrics.clear();
  frame_.pieces.clear();
  frame_.squares.reset();
  frame_.stop.reset();
  set_status(-1);
  if (streams_) {
    measures_scratch_ = false;  // querying the allocator delays queued work
    read_streams(result);
  }
  const std::int64_t end = monotonic_ns();
  result.step_s = static_cast<double>(end - begin) * 1e-9;
  result.compute_s = result.step_s - result.wait_s;
  if (parts_) result.parts = parts_->parts();
  result.peak_bytes = std::max(highest_, peak());
  timeline_.end_step(end, result.peak_bytes);
}

/// The host's times tell when work was queued; an asynchronous device's own times replace them.
trace::Trace TorchExecutor::timeline() const {
  trace::Trace trace = timeline_.trace();
  if (!streams_) return trace;
  std::vector<int> ids;
  std::vector<bool> waits;
  std::vector<std::size_t> place(program_.instructions.size());
  for (const Compute& compute : compute_) {
    place[static_cast<std::size_t>(compute.id)] = ids.size();
    ids.push_back(compute.id);
    waits.push_back(!compute.waits.empty());
  }
  std::int64_t step = -1, first = 0;
  std::vector<Streams::Span> spans;
  for (trace::Interval& interval : trace.intervals) {
    if (interval.lane != Lane::kCompute) continue;
    if (interval.step != step) {  // they are ordered by step
      step = interval.step;
      first = interval.begin;
      spans = streams_->spans(step, ids, waits);
    }
    if (spans.empty()) continue;
    const Streams::Span& span = spans[place[interval.instruction.index()]];
    interval.begin = std::max(first, span.begin);
    interval.end = std::max(interval.begin, span.end);
  }
  return trace;
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
