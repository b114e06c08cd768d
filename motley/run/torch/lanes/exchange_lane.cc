#include "motley/run/torch/lanes/exchange_lane.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "motley/program/parts.h"
#include "motley/program/strands.h"
#include "motley/run/launch/processors.h"
#include "motley/run/torch/exchange/clock.h"
#include "motley/run/torch/operators/tensors.h"

namespace motley::run {

ExchangeLane::ExchangeLane(std::size_t strand, std::vector<PreparedExchange> exchanges,
                           const ExchangeContext& context)
    : strand_(strand), exchanges_(std::move(exchanges)), context_(context) {
  if (!exchanges_.empty()) thread_ = std::thread([this] { serve(); });
}

ExchangeLane::~ExchangeLane() {
  if (!thread_.joinable()) return;
  started_.fail();
  thread_.join();
}

void ExchangeLane::start_step() {
  if (exchanges_.empty()) return;
  started_.advance(steps_++);
}

bool ExchangeLane::finish_step() const {
  return exchanges_.empty() || context_.progress->wait_for({strand_, exchanges_.back().id});
}

void ExchangeLane::serve() {
  use_all_processors();
  const c10::InferenceMode no_autograd;
  if (context_.streams != nullptr) context_.streams->use_own_stream();
  for (int step = 0; started_.wait_for(step); ++step) {
    if (auto result = run_step(); !result) {
      context_.progress->fail(strand_, std::move(result).error());
      // Only after the fault is recorded, so that its consequences elsewhere do not hide it.
      if (context_.communicator != nullptr) context_.communicator->close();
      return;
    }
  }
}

Result<void> ExchangeLane::run_step() {
  for (const PreparedExchange& exchange : exchanges_) {
    if (!context_.progress->wait_for_all(exchange.waits))
      return tl::make_unexpected(StepProgress::stopped());
    // Others see a result when the emulated device has it, not when the real one does.
    if (const std::int64_t ready = context_.progress->ready_ns(exchange.waits); ready != 0)
      sleep_until_ns(ready);
    if (context_.frame->is_left_out(exchange.is_carried)) {
      leave_out(exchange);
      continue;
    }
    MOTLEY_RETURN_IF_ERROR(run(exchange));
    // Before others see it as done, so that the compute lane's peak is as in the program.
    for (const int id : exchange.frees) context_.frame->values[id].reset();
    context_.progress->advance(strand_, exchange.id, arrived_ns_);
  }
  show(-1);
  return {};
}

/// Others go on as if it were done.
void ExchangeLane::leave_out(const PreparedExchange& exchange) const {
  if (context_.streams != nullptr) context_.streams->mark(exchange.id);
  const std::int64_t now = context_.timeline->is_on() ? monotonic_ns() : 0;
  context_.timeline->record(static_cast<std::size_t>(exchange.id), now, now);
  context_.progress->advance(strand_, exchange.id);
}

void ExchangeLane::show(int id) const {
  if (strand_ != program::Strands::kTransfer) {
    context_.progress->set_under_way(strand_, id);
  } else if (context_.status != nullptr) {
    context_.status->transfer_instruction.store(id, std::memory_order_relaxed);
  }
}

Result<void> ExchangeLane::sum(const PreparedExchange& exchange) const {
  at::Tensor& value = context_.frame->values[exchange.buffer];
  // Communicators need flat memory; a value that is not contiguous is copied there and back.
  const at::Tensor flat = value.contiguous();
  at::Tensor numbers = as_real(flat);
  if (context_.communicator != nullptr)
    MOTLEY_RETURN_IF_ERROR(context_.communicator->all_reduce(exchange.call, numbers));
  if (!flat.is_same(value)) value.copy_(flat);
  return {};
}

Result<void> ExchangeLane::give_parts(const PreparedExchange& exchange) const {
  const at::Tensor value = as_real(context_.frame->values[exchange.buffer].contiguous());
  at::Tensor made = allocate(exchange.about, context_.frame->device);
  at::Tensor result = as_real(made);
  Communicator* communicator = context_.communicator;
  // One rank is profiled alone: shapes and work are as in the run, contents as far as known.
  if (communicator == nullptr) {
    const std::int64_t known = std::min(value.numel(), result.numel());
    result.zero_().narrow(0, 0, known).copy_(value.narrow(0, 0, known));
  } else if (exchange.op == program::kAllGather) {
    MOTLEY_RETURN_IF_ERROR(
        communicator->all_gather(exchange.call, exchange.splits.sends, value, result));
  } else if (exchange.op == program::kReduceScatter) {
    MOTLEY_RETURN_IF_ERROR(
        communicator->reduce_scatter(exchange.call, exchange.splits.sends, value, result));
  } else {
    MOTLEY_RETURN_IF_ERROR(communicator->all_to_all(exchange.call, exchange.splits, value, result));
  }
  define(exchange, std::move(made));
  return {};
}

void ExchangeLane::define(const PreparedExchange& exchange, at::Tensor made) const {
  if (context_.streams != nullptr) context_.streams->hand_over(made);
  context_.frame->values[exchange.result] = std::move(made);
}

Result<void> ExchangeLane::send(const PreparedExchange& exchange) {
  if (context_.communicator == nullptr) return {};
  const at::Tensor value = as_real(context_.frame->values[exchange.buffer].contiguous());
  MOTLEY_ASSIGN(arrived_ns_, context_.communicator->send(exchange.peer, value));
  return {};
}

Result<void> ExchangeLane::receive(const PreparedExchange& exchange) {
  at::Tensor made = allocate(exchange.about, context_.frame->device);
  at::Tensor numbers = as_real(made);
  if (context_.communicator == nullptr) {
    numbers.zero_();
  } else {
    MOTLEY_ASSIGN(arrived_ns_, context_.communicator->receive(exchange.peer, numbers));
  }
  define(exchange, std::move(made));
  return {};
}

/// Runs the exchange and records when the others' data had arrived.
Result<void> ExchangeLane::carry_out(const PreparedExchange& exchange) {
  arrived_ns_ = 0;
  if (exchange.op == program::kSend) return send(exchange);
  if (exchange.op == program::kReceive) return receive(exchange);
  MOTLEY_RETURN_IF_ERROR(exchange.op == program::kAllReduce ? sum(exchange) : give_parts(exchange));
  if (context_.communicator != nullptr) arrived_ns_ = context_.communicator->arrived_ns();
  return {};
}

/// A device's exchange takes from the end of its inputs' kernels to the end of its own.
void ExchangeLane::empty_stream() const {
  if (context_.streams != nullptr) context_.streams->synchronize();
}

Result<void> ExchangeLane::run(const PreparedExchange& exchange) {
  show(exchange.id);
  context_.frame->meet_fault(exchange.id);
  const bool is_timed = context_.took_s != nullptr && strand_ == program::Strands::kTransfer;
  // Waits on the device too: an issued kernel has not run yet.
  if (context_.streams != nullptr)
    for (const StrandWait& wait : exchange.waits) context_.streams->wait_for(wait.id);
  if (is_timed) empty_stream();
  const std::int64_t begin = is_timed || context_.timeline->is_on() ? monotonic_ns() : 0;
  const std::int64_t worked = thread_cpu_ns();
  Result<void> result;
  try {
    result = carry_out(exchange);
  } catch (const c10::Error& error) {
    result = runtime_error("run.operator", error.what_without_backtrace());
  } catch (const std::exception& error) {
    result = runtime_error("run.operator", error.what());
  }
  if (!result) return with_context(exchange.place, std::move(result).error());
  if (arrived_ns_ != 0) arrived_ns_ += thread_cpu_ns() - worked;
  if (strand_ != program::Strands::kTransfer) show(-1);
  if (context_.streams != nullptr) context_.streams->mark(exchange.id);
  if (is_timed) {
    empty_stream();
    (*context_.took_s)[static_cast<std::size_t>(exchange.id)] =
        static_cast<double>(monotonic_ns() - begin) * 1e-9;
  }
  if (context_.timeline->is_on())
    context_.timeline->record(static_cast<std::size_t>(exchange.id), begin, monotonic_ns());
  return {};
}

}  // namespace motley::run
