#include "motley/run/torch/lanes/transfer_lane.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "motley/program/parts.h"
#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/operators/tensors.h"

namespace motley::run {

namespace {

constexpr int kEnd = -1;

}  // namespace

TransferLane::TransferLane(std::vector<PreparedExchange> transfers, const TransferContext& context)
    : transfers_(std::move(transfers)), context_(context) {
  if (!transfers_.empty()) thread_ = std::thread([this] { serve(); });
}

TransferLane::~TransferLane() {
  if (!thread_.joinable()) return;
  started_.store(kEnd);
  started_.notify_all();
  thread_.join();
}

void TransferLane::start_step() {
  if (transfers_.empty()) return;
  done_.reset();
  started_.fetch_add(1);
  started_.notify_all();
}

bool TransferLane::finish_step() const {
  return transfers_.empty() || done_.wait_for(transfers_.back().id);
}

void TransferLane::serve() {
  const c10::InferenceMode no_autograd;
  if (context_.streams != nullptr) context_.streams->use_own_stream();
  for (int seen = 0;;) {
    started_.wait(seen);
    // Not seen + 1: the end may have come instead of a step.
    seen = started_.load();
    if (seen == kEnd) return;
    if (auto result = run_step(); !result) {
      error_ = std::move(result).error();
      done_.fail();
      return;
    }
  }
}

Result<void> TransferLane::run_step() {
  for (const PreparedExchange& transfer : transfers_) {
    if (transfer.wait >= 0 && !context_.compute->wait_for(transfer.wait))
      return runtime_error("run.stopped", "the compute lane failed");
    MOTLEY_RETURN_IF_ERROR(run(transfer));
    // Before `done` is published, so that the compute lane's peak is what the program says.
    for (const int id : transfer.frees) context_.frame->values[id].reset();
    done_.advance(transfer.id);
  }
  if (context_.status != nullptr)
    context_.status->transfer_instruction.store(-1, std::memory_order_relaxed);
  return {};
}

Result<void> TransferLane::sum(const PreparedExchange& transfer) const {
  at::Tensor& value = context_.frame->values[transfer.buffer];
  // Communicators take flat memory; a value that is not contiguous is copied there and back.
  const at::Tensor flat = value.contiguous();
  at::Tensor numbers = as_real(flat);
  if (context_.communicator != nullptr)
    MOTLEY_RETURN_IF_ERROR(context_.communicator->all_reduce(transfer.call, numbers));
  if (!flat.is_same(value)) value.copy_(flat);
  return {};
}

Result<void> TransferLane::exchange(const PreparedExchange& transfer) const {
  const at::Tensor value = as_real(context_.frame->values[transfer.buffer].contiguous());
  at::Tensor made = allocate(transfer.about, context_.frame->device);
  at::Tensor result = as_real(made);
  Communicator* communicator = context_.communicator;
  // One rank of many that is profiled alone: shapes and work as in the run, contents as far as
  // known.
  if (communicator == nullptr) {
    const std::int64_t known = std::min(value.numel(), result.numel());
    result.zero_().narrow(0, 0, known).copy_(value.narrow(0, 0, known));
  } else if (transfer.op == program::kAllGather) {
    MOTLEY_RETURN_IF_ERROR(
        communicator->all_gather(transfer.call, transfer.splits.sends, value, result));
  } else if (transfer.op == program::kReduceScatter) {
    MOTLEY_RETURN_IF_ERROR(
        communicator->reduce_scatter(transfer.call, transfer.splits.sends, value, result));
  } else {
    MOTLEY_RETURN_IF_ERROR(communicator->all_to_all(transfer.call, transfer.splits, value, result));
  }
  if (context_.streams != nullptr) context_.streams->hand_over(made);
  context_.frame->values[transfer.result] = std::move(made);
  return {};
}

void TransferLane::note_ready(std::int64_t work_ns) {
  const std::int64_t arrived =
      context_.communicator == nullptr ? 0 : context_.communicator->arrived_ns();
  ready_ns_.store(arrived == 0 ? 0 : arrived + work_ns, std::memory_order_release);
}

Result<void> TransferLane::run(const PreparedExchange& transfer) {
  if (context_.status != nullptr)
    context_.status->transfer_instruction.store(transfer.id, std::memory_order_relaxed);
  const std::int64_t begin = context_.timeline->is_on() ? monotonic_ns() : 0;
  const std::int64_t worked = thread_cpu_ns();
  // On the device, too: that the compute lane has issued a kernel does not mean that it has run.
  if (context_.streams != nullptr && transfer.wait >= 0) context_.streams->wait_for(transfer.wait);
  Result<void> result;
  try {
    result = transfer.op == program::kAllReduce ? sum(transfer) : exchange(transfer);
  } catch (const c10::Error& error) {
    result = runtime_error("run.operator", error.what_without_backtrace());
  } catch (const std::exception& error) {
    result = runtime_error("run.operator", error.what());
  }
  if (!result) return with_context(transfer.place, std::move(result).error());
  note_ready(thread_cpu_ns() - worked);
  if (context_.streams != nullptr) context_.streams->mark(transfer.id);
  if (context_.timeline->is_on())
    context_.timeline->record(static_cast<std::size_t>(transfer.id), begin, monotonic_ns());
  return {};
}

}  // namespace motley::run
