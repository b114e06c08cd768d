#include "motley/run/torch/order_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <utility>

#include "motley/base/json.h"
#include "motley/run/change.h"
#include "motley/run/torch/lanes/moved_tensors.h"

namespace motley::run {
namespace {

int rank_in(const std::vector<WorkerDevice>& devices, const std::string& name) {
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [&](const WorkerDevice& each) { return each.name == name; });
  return found == devices.end() ? -1 : static_cast<int>(found - devices.begin());
}

}  // namespace

Result<std::unique_ptr<WorkerSession>> open_part(const WorkerSession& process,
                                                 const std::string& name,
                                                 std::vector<WorkerDevice> devices,
                                                 program::Program program,
                                                 std::vector<program::Program> evaluations) {
  auto part = std::make_unique<WorkerSession>();
  part->process = process.process;
  part->job = process.job;
  part->job.devices = std::move(devices);
  part->program = std::move(program);
  part->evaluations = std::move(evaluations);
  part->size = static_cast<int>(part->job.devices.size());
  const WorkerDevice& own = process.device();
  const int rank = rank_in(part->job.devices, own.name);
  part->is_idle = rank < 0;
  if (part->is_idle) return part;
  part->rank = rank;
  WorkerDevice& here = part->job.devices[static_cast<std::size_t>(rank)];
  here.local_index = own.local_index;  // as it was found here
  if (part->size == 1) return part;
  MOTLEY_ASSIGN(part->rendezvous, process.rendezvous->branch(name, rank, part->size));
  return part;
}

Result<std::unique_ptr<OrderReader>> OrderReader::start(const WorkerSession& process,
                                                        const Reporter& reporter) {
  std::unique_ptr<OrderReader> reader(new OrderReader(process, reporter));
  if (process.rendezvous) {
    MOTLEY_ASSIGN(reader->store_,
                  process.rendezvous->branch("orders", process.process, process.size));
  }
  reader->thread_ = std::thread([raw = reader.get()] { raw->read(); });
  return reader;
}

/// The thread may wait for ever, for orders: the process ends with it.
OrderReader::~OrderReader() { thread_.detach(); }

void OrderReader::set_present(Present present) {
  const std::lock_guard lock(mutex_);
  present_ = std::move(present);
  changed_.notify_all();
}

Result<Next> OrderReader::take(Seconds patience) {
  std::unique_lock lock(mutex_);
  const auto limit = std::chrono::duration<double>(patience.value);
  if (!changed_.wait_for(lock, limit, [&] { return next_.has_value(); }))
    return runtime_error("run.timeout",
                         fmt::format("rank {}: the next program was not ready within {:g} s",
                                     process_.process, patience.value));
  Result<Next> next = std::move(*next_);
  next_.reset();
  // What it will find belongs to the program before until training says otherwise.
  present_ = Present{};
  changed_.notify_all();
  return next;
}

void OrderReader::read() {
  std::string line;
  while (std::getline(std::cin, line)) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !next_ && present_.status != nullptr; });
    }
    Result<Next> next = prepare(line);
    const std::size_t given = process_.job.changes->at.size();
    const bool is_given = next && static_cast<std::size_t>(next->number) <= given;
    const std::lock_guard lock(mutex_);
    if (!next && given == 0) continue;  // it was said, and training goes on as it is
    const auto ask = present_.leads && !is_given ? present_.request_change : nullptr;
    next_ = std::move(next);
    changed_.notify_all();
    if (ask) ask();
  }
}

Result<Next> OrderReader::prepare(const std::string& line) {
  Present present;
  {
    const std::lock_guard lock(mutex_);
    present = present_;
  }
  Next next;
  const auto prepared = prepare_parts(line, present, next);
  MOTLEY_RETURN_IF_ERROR(agree(next.number, prepared));
  return next;
}

Result<void> OrderReader::prepare_parts(const std::string& line, const Present& present,
                                        Next& next) const {
  MOTLEY_ASSIGN(ChangeOrder order, parse_order(line));
  next.number = order.number;
  next.handover.status = present.status;
  next.handover.model = present.model;
  if (!next.handover.model) {
    MOTLEY_ASSIGN(graph::Model model, graph::read_model(process_.job.model_path));
    next.handover.model = std::make_shared<const graph::Model>(std::move(model));
  }
  MOTLEY_RETURN_IF_ERROR(prepare_move(order, present, next));
  MOTLEY_ASSIGN(next.session,
                open_part(process_, fmt::format("stint/{}", order.number), order.devices,
                          std::move(order.program), std::move(order.evaluations)));
  next.session->stint = order.number;
  return next.session->is_idle ? Result<void>() : prepare_program(present, next);
}

/// The program that brings tensors into their new forms, over both sets of them.
Result<void> OrderReader::prepare_move(const ChangeOrder& order, const Present& present,
                                       Next& next) const {
  MOTLEY_ASSIGN(next.moving,
                open_part(process_, fmt::format("move/{}", order.number),
                          devices_of(order.move, process_.job.devices), order.move, {}));
  WorkerSession& session = *next.moving;
  if (session.is_idle) {
    next.moving.reset();
    return {};
  }
  MOTLEY_RETURN_IF_ERROR(join_groups(session));
  ExecutorOptions options = executor_options(session);
  options.shared = old_tensors(present.tensors);
  const auto rank = static_cast<std::size_t>(session.rank);
  MOTLEY_ASSIGN(next.mover, Executor::create(session.program.devices[rank], options,
                                             session.communicator.get(), nullptr));
  return {};
}

/// Its tensors are those that the move leaves as they are, and those that it will fill.
Result<void> OrderReader::prepare_program(const Present& present, Next& next) const {
  WorkerSession& session = *next.session;
  Handover& handover = next.handover;
  MOTLEY_RETURN_IF_ERROR(join_groups(session));
  const auto rank = static_cast<std::size_t>(session.rank);
  const program::DeviceProgram& program = session.program.devices[rank];
  ExecutorOptions options = executor_options(session);
  options.timeline_steps = session.job.trace_steps;
  options.measures_parts = true;
  options.shared = new_tensors(
      program, next.moving->program.devices[static_cast<std::size_t>(next.moving->rank)],
      next.mover->persistent());
  MOTLEY_ASSIGN(handover.executor, Executor::create(program, options, session.communicator.get(),
                                                    &present.status->record()));
  MOTLEY_RETURN_IF_ERROR(
      load_model(session.job, *handover.model, Masters::kMoved, *handover.executor));
  options.timeline_steps = 0;
  options.measures_parts = false;
  options.shared = handover.executor->persistent();
  for (const program::Program& evaluation : session.evaluations) {
    MOTLEY_ASSIGN(
        handover.evaluators.emplace_back(),
        Executor::create(evaluation.devices[rank], options, session.communicator.get(), nullptr));
    MOTLEY_RETURN_IF_ERROR(
        load_model(session.job, *handover.model, Masters::kMoved, *handover.evaluators.back()));
  }
  const bool has_parts =
      std::any_of(program.buffers.begin(), program.buffers.end(),
                  [](const program::Buffer& buffer) { return buffer.part.has_value(); });
  std::vector<std::string> keepers = {has_parts ? "some" : "none"};
  if (session.rendezvous) {
    MOTLEY_ASSIGN(keepers, session.rendezvous->share("parts", keepers[0], session.patience()));
  }
  handover.some_have_parts = std::count(keepers.begin(), keepers.end(), "some") > 0;
  return {};
}

/// All are ready, or none goes on: the first rank of the program that runs hears all and says so.
Result<void> OrderReader::agree(int number, const Result<void>& own) {
  if (!store_) return own;
  const std::string key = fmt::format("{}/", number);
  const Seconds patience = process_.patience();
  MOTLEY_RETURN_IF_ERROR(store_->set(fmt::format("{}ready/{}", key, process_.process),
                                     own ? std::string() : own.error().message));
  bool leads = false;
  {
    const std::lock_guard lock(mutex_);
    leads = present_.leads;
  }
  if (!leads) {
    MOTLEY_ASSIGN(const std::string verdict, store_->get(key + "verdict", 2 * patience));
    if (verdict.empty()) return {};
    return runtime_error("run.change", verdict);
  }
  std::string verdict;
  for (int process = 0; process < process_.size && verdict.empty(); ++process) {
    MOTLEY_ASSIGN(verdict, store_->get(fmt::format("{}ready/{}", key, process), patience));
  }
  MOTLEY_RETURN_IF_ERROR(store_->set(key + "verdict", verdict));
  if (verdict.empty()) return {};
  reporter_.event("refused", Json{{"change", number}, {"why", verdict}});
  return runtime_error("run.change", verdict);
}

}  // namespace motley::run
