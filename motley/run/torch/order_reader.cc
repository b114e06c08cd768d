#include "motley/run/torch/order_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "motley/base/exit_code.h"
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
                                                 std::vector<program::Program> evaluations,
                                                 std::shared_ptr<std::atomic<bool>> cancelled) {
  auto part = std::make_unique<WorkerSession>();
  part->process = process.process;
  part->counts_every = process.counts_every;
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
  here.local_index = own.local_index;  // as found here
  if (part->size == 1) return part;
  MOTLEY_ASSIGN(part->rendezvous,
                process.rendezvous->branch(name, rank, part->size, std::move(cancelled)));
  return part;
}

void Next::halt() {
  for (WorkerSession* each : {session.get(), moving.get()}) {
    if (each == nullptr) continue;
    if (each->rendezvous) each->rendezvous->cancel();
    if (each->communicator) each->communicator->close();
  }
}

Result<std::unique_ptr<OrderReader>> OrderReader::start(const WorkerSession& process,
                                                        const Reporter& reporter,
                                                        std::istream& orders) {
  std::unique_ptr<OrderReader> reader(new OrderReader(process, reporter));
  reader->thread_ = std::thread([raw = reader.get(), &orders] { raw->read(orders); });
  return reader;
}

/// The thread may wait forever for orders: the process ends with it.
OrderReader::~OrderReader() { thread_.detach(); }

void OrderReader::set_present(Present present) {
  const std::lock_guard lock(mutex_);
  present_ = std::move(present);
  changed_.notify_all();
}

void OrderReader::set_halt(std::function<void()> halt) {
  const std::lock_guard lock(mutex_);
  halt_ = std::move(halt);
  if (halt_ && halts_ > known_halts_) halt_();
}

std::optional<int> OrderReader::next_follows() {
  const std::lock_guard lock(mutex_);
  if (next_ && *next_) return (**next_).follows;
  if (under_way_) return under_way_->order.after;
  return orders_.empty() ? follows_ : std::optional(orders_.front().after);
}

bool OrderReader::is_halted() {
  const std::lock_guard lock(mutex_);
  return halts_ > known_halts_;
}

namespace {

Error halted() { return {ErrorKind::kRuntime, "run.halted", "told to stop, as others were lost"}; }

std::chrono::duration<double> duration(Seconds seconds) {
  return std::chrono::duration<double>(seconds.value);
}

}  // namespace

Result<int> OrderReader::await_halt(Seconds patience) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, duration(patience), [&] { return halts_ > known_halts_; }))
    return runtime_error("run.timeout",
                         fmt::format("rank {}: nobody said within {:g} s how to go on",
                                     process_.process, patience.value));
  known_halts_ = halts_;
  return known_halts_;
}

Result<Recovery> OrderReader::await_recovery(Seconds patience) {
  std::unique_lock lock(mutex_);
  const bool came = changed_.wait_for(
      lock, duration(patience), [&] { return recovery_.has_value() || halts_ > known_halts_; });
  if (halts_ > known_halts_) return tl::make_unexpected(halted());
  if (!came)
    return runtime_error("run.timeout", fmt::format("rank {}: no plan came within {:g} s",
                                                    process_.process, patience.value));
  Recovery recovery = std::move(*recovery_);
  recovery_.reset();
  return recovery;
}

Result<Next> OrderReader::take(Seconds patience) {
  std::unique_lock lock(mutex_);
  const bool came = changed_.wait_for(lock, duration(patience),
                                      [&] { return next_.has_value() || halts_ > known_halts_; });
  if (halts_ > known_halts_) return tl::make_unexpected(halted());
  if (!came)
    return runtime_error("run.timeout",
                         fmt::format("rank {}: the next program was not ready within {:g} s",
                                     process_.process, patience.value));
  Result<Next> next = std::move(*next_);
  next_.reset();
  // The next order is prepared from new tensors, once training shows them.
  present_ = Present{};
  return next;
}

void OrderReader::read(std::istream& orders) {
  std::string line;
  while (std::getline(orders, line)) {
    Result<ChangeOrder> order = parse_order(line);
    if (!order) {
      reporter_.error(order.error(), "");
      std::_Exit(exit_code(order.error()));
    }
    obey(std::move(*order));
  }
}

void OrderReader::obey(ChangeOrder order) {
  if (order.halt > 0) return halt(order.halt);
  if (order.counts_every) {
    process_.counts_every->store(*order.counts_every, std::memory_order_relaxed);
    return;
  }
  const std::vector<int>& processes = order.processes;
  const bool is_meant =
      processes.empty() || std::count(processes.begin(), processes.end(), process_.process) > 0;
  if (!is_meant) return;  // it had not joined yet when that was decided
  const std::lock_guard lock(mutex_);
  if (order.follows) {
    follows_ = order.follows;
    return;
  }
  if (order.recovery) recovery_ = order.recovery;
  orders_.push_back(std::move(order));
  begin_next(lock);
  changed_.notify_all();
}

void OrderReader::halt(int number) {
  {
    const std::lock_guard lock(mutex_);
    halts_ = number;
    orders_.clear();
    next_.reset();
    recovery_.reset();
    if (under_way_) *under_way_->cancelled = true;
    under_way_.reset();
    if (halt_) halt_();
    changed_.notify_all();
  }
  reporter_.event("heard", Json{{"halt", number}});
}

void OrderReader::begin_next(const std::lock_guard<std::mutex>&) {
  if (under_way_ || orders_.empty()) return;
  under_way_ = std::make_shared<Preparation>(Preparation{std::move(orders_.front())});
  orders_.pop_front();
  std::thread([this, preparation = under_way_] { prepare(preparation); }).detach();
}

void OrderReader::prepare(const std::shared_ptr<Preparation>& preparation) {
  Present present;
  {
    std::unique_lock lock(mutex_);
    const auto is_time = [&] {
      return *preparation->cancelled || (!next_ && present_.status != nullptr);
    };
    changed_.wait(lock, is_time);
    if (*preparation->cancelled) return;
    present = present_;
  }
  Next next;
  const std::optional<StoreAddress>& keys = preparation->order.keys;
  const auto met =
      keys && process_.rendezvous ? process_.rendezvous->move_keys(*keys) : Result<void>();
  const auto prepared = met ? prepare_parts(*preparation, present, next) : met;
  const auto agreed = agree(*preparation, prepared);
  const std::size_t given = process_.job.changes->at.size();
  const bool is_given = static_cast<std::size_t>(next.number) <= given;
  const bool is_recovery = preparation->order.recovery.has_value();
  const std::lock_guard lock(mutex_);
  if (*preparation->cancelled) return;
  under_way_.reset();
  if (agreed || given > 0 || is_recovery) {  // else reported; training continues
    next_ = agreed ? Result<Next>(std::move(next)) : tl::make_unexpected(agreed.error());
    if (agreed && present_.leads && !is_given && !is_recovery && present_.request_change)
      present_.request_change();
  }
  begin_next(lock);
  changed_.notify_all();
}

Result<void> OrderReader::prepare_parts(const Preparation& preparation, const Present& present,
                                        Next& next) const {
  const ChangeOrder& order = preparation.order;
  next.number = order.number;
  next.follows = order.after;
  next.handover.status = present.status;
  next.handover.lr_factor = preparation.order.lr_factor;
  next.handover.model = present.model;
  if (!next.handover.model) {
    MOTLEY_ASSIGN(graph::Model model, graph::read_model(process_.job.model_path));
    next.handover.model = std::make_shared<const graph::Model>(std::move(model));
  }
  MOTLEY_RETURN_IF_ERROR(prepare_move(preparation, present, next));
  MOTLEY_ASSIGN(next.session,
                open_part(process_, fmt::format("stint/{}", order.number), order.devices,
                          order.program, order.evaluations, preparation.cancelled));
  next.session->generation = order.number;
  return next.session->is_idle ? Result<void>() : prepare_program(preparation, present, next);
}

/// Prepares the program that moves tensors, over both sets of them.
Result<void> OrderReader::prepare_move(const Preparation& preparation, const Present& present,
                                       Next& next) const {
  const ChangeOrder& order = preparation.order;
  MOTLEY_ASSIGN(next.moving, open_part(process_, fmt::format("move/{}", order.number), order.moving,
                                       order.move, {}, preparation.cancelled));
  WorkerSession& session = *next.moving;
  if (session.is_idle) {
    next.moving.reset();
    return {};
  }
  MOTLEY_RETURN_IF_ERROR(join_groups(session));
  ExecutorOptions options = executor_options(session, true);
  options.shared = old_tensors(present.tensors);
  const auto rank = static_cast<std::size_t>(session.rank);
  MOTLEY_ASSIGN(next.mover, Executor::create(session.program.devices[rank], options,
                                             session.communicator.get(), nullptr));
  return {};
}

/// Prepares the next program with tensors that the move leaves in place, or will fill.
Result<void> OrderReader::prepare_program(const Preparation& preparation, const Present& present,
                                          Next& next) const {
  WorkerSession& session = *next.session;
  Handover& handover = next.handover;
  MOTLEY_RETURN_IF_ERROR(join_groups(session));
  // The last call that needs the others: if one fails after it, all learn why (agree).
  MOTLEY_ASSIGN(handover.some_have_parts, find_parts(session));
  const auto rank = static_cast<std::size_t>(session.rank);
  const program::DeviceProgram& program = session.program.devices[rank];
  ExecutorOptions options = executor_options(session);
  options.timeline_steps = session.job.trace_steps;
  options.measures_parts = true;
  if (next.moving)
    options.shared = new_tensors(
        program, next.moving->program.devices[static_cast<std::size_t>(next.moving->rank)],
        next.mover->persistent());
  MOTLEY_ASSIGN(handover.executor, Executor::create(program, options, session.communicator.get(),
                                                    &present.status->record()));
  const auto& recovery = preparation.order.recovery;
  const bool is_loaded = recovery && !recovery->from.empty();
  MOTLEY_RETURN_IF_ERROR(load_model(session.job, *handover.model,
                                    is_loaded ? Masters::kBegin : Masters::kMoved,
                                    *handover.executor));
  if (is_loaded) MOTLEY_RETURN_IF_ERROR(load_kept(*recovery, next));
  options.timeline_steps = 0;
  options.faults.clear();
  options.measures_parts = false;
  options.shared = handover.executor->persistent();
  for (const program::Program& evaluation : session.evaluations) {
    MOTLEY_ASSIGN(
        handover.evaluators.emplace_back(),
        Executor::create(evaluation.devices[rank], options, session.communicator.get(), nullptr));
    MOTLEY_RETURN_IF_ERROR(
        load_model(session.job, *handover.model, Masters::kMoved, *handover.evaluators.back()));
  }
  return {};
}

Result<bool> OrderReader::find_parts(const WorkerSession& session) {
  const auto& buffers = session.program.devices[static_cast<std::size_t>(session.rank)].buffers;
  const bool has_parts = std::any_of(buffers.begin(), buffers.end(),
                                     [](const auto& buffer) { return buffer.part.has_value(); });
  if (!session.rendezvous) return has_parts;
  MOTLEY_ASSIGN(
      const std::vector<std::string> keepers,
      session.rendezvous->share("parts", has_parts ? "some" : "none", session.patience()));
  return std::count(keepers.begin(), keepers.end(), "some") > 0;
}

Result<void> OrderReader::load_kept(const Recovery& recovery, Next& next) const {
  if (recovery.from == "new") return {};
  MOTLEY_ASSIGN(const Checkpoint found, open_checkpoint(recovery.from, TensorFiles::Extent::kSome));
  MOTLEY_RETURN_IF_ERROR(next.handover.executor->load(found.model, false));
  return next.handover.executor->load(found.optimizer, false);
}

/// All are ready, or none continues: the first live process collects all results and publishes one.
Result<void> OrderReader::agree(const Preparation& preparation, const Result<void>& own) const {
  if (!process_.rendezvous) return own;
  const ChangeOrder& order = preparation.order;
  std::vector<int> processes = order.processes;
  for (int process = 0; order.processes.empty() && process < process_.size; ++process)
    processes.push_back(process);
  MOTLEY_ASSIGN(const auto store, process_.rendezvous->branch(
                                      fmt::format("orders/{}", order.number), process_.process,
                                      process_.size, preparation.cancelled));
  const Seconds patience = process_.patience();
  MOTLEY_RETURN_IF_ERROR(store->set(fmt::format("ready/{}", process_.process),
                                    own ? std::string() : own.error().message));
  if (processes.front() != process_.process) {
    MOTLEY_ASSIGN(const std::string verdict, store->get("verdict", 2 * patience));
    if (verdict.empty()) return {};
    return runtime_error("run.change", verdict);
  }
  std::string verdict;
  for (std::size_t i = 0; i < processes.size() && verdict.empty(); ++i) {
    MOTLEY_ASSIGN(verdict, store->get(fmt::format("ready/{}", processes[i]), patience));
  }
  MOTLEY_RETURN_IF_ERROR(store->set("verdict", verdict));
  if (verdict.empty()) return {};
  reporter_.event("refused", Json{{"change", order.number}, {"why", verdict}});
  return runtime_error("run.change", verdict);
}

}  // namespace motley::run
