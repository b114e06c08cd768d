#include "motley/run/torch/rank_generations.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "motley/base/json_fields.h"
#include "motley/base/quiet_thread.h"
#include "motley/run/change.h"
#include "motley/run/torch/exchange/clock.h"

namespace motley::run {
namespace {

constexpr int kUnknown = -1;  // number of the generation, in a process that has just joined

class NoSamples final : public data::Batch {
 public:
  std::int64_t samples() const override { return 0; }
  std::int64_t sample_bytes(std::size_t) const override { return 0; }
  void read(std::size_t, std::int64_t, std::byte*) const override {}
};

}  // namespace

Result<std::unique_ptr<RankGenerations>> RankGenerations::open(WorkerSession& process,
                                                               const Reporter& reporter,
                                                               OnTraining on_training) {
  std::unique_ptr<RankGenerations> generations(
      new RankGenerations(process, reporter, std::move(on_training)));
  // A process that joins a running job first takes part in a later program.
  const auto devices = process.joins ? std::vector<WorkerDevice>()
                                     : devices_of(process.program, process.job.devices);
  MOTLEY_ASSIGN(generations->session_,
                open_part(process, "stint/0", devices, process.program, process.evaluations));
  if (process.joins) generations->number_ = kUnknown;
  MOTLEY_ASSIGN(generations->orders_, OrderReader::start(process, reporter));
  if (!generations->session_->is_idle) {
    MOTLEY_ASSIGN(generations->training_, RankTraining::open(*generations->session_, reporter));
    generations->status_ = generations->training_->status();
    generations->model_ = generations->training_->model();
  } else {
    MOTLEY_ASSIGN(StatusFile status, StatusFile::create(process.job.run_dir, process.process));
    generations->status_ = std::make_shared<StatusFile>(std::move(status));
    reporter.event("ready",
                   Json{{"device", process.device().name}, {"idle", true}, {"leads", false}});
  }
  generations->show_present();
  return generations;
}

void RankGenerations::show_present() {
  OrderReader::Present present;
  present.model = model_;
  present.status = status_;
  present.leads = is_lead();
  if (training_) {
    present.tensors = training_->persistent();
    present.request_change = [training = training_.get()] { training->request_change(); };
  }
  orders_->set_present(std::move(present));
  std::function<void()> halt;
  if (training_) halt = [training = training_.get()] { training->halt(); };
  orders_->set_halt(std::move(halt));
  on_training_(training_.get());
}

/// Returns the step before which the next change begins, if it was given.
std::optional<std::int64_t> RankGenerations::given_step() const {
  const std::vector<std::int64_t>& at = process_.job.changes->at;
  const auto next = static_cast<std::size_t>(number_);
  if (next >= at.size()) return std::nullopt;
  return at[next];
}

/// As the first rank of a generation's program, tells the others, even idle ones, what follows.
Result<void> RankGenerations::tell(const Json& word) {
  if (!is_lead() || !process_.rendezvous) return {};
  return process_.rendezvous->set(fmt::format("after/{}", number_), word.dump());
}

/// Waits for the first rank's word on what follows this generation.
Result<Json> RankGenerations::wait_word() {
  constexpr Seconds kLook{0.1};
  while (!orders_->is_halted()) {
    if (number_ == kUnknown) number_ = orders_->next_follows().value_or(kUnknown);
    // While the number is unknown, nobody sets this key.
    const std::string key = fmt::format("after/{}", number_);
    const auto text = process_.rendezvous->get(key, kLook);
    if (text) return parse_json(*text, key);
    if (text.error().code != "run.timeout") return tl::make_unexpected(text.error());
    // The others may train for days; the coordinator notices if they make no progress.
    status_->record().updated_ns.store(monotonic_ns(), std::memory_order_relaxed);
  }
  return runtime_error("run.halted", "told to stop, as others were lost");
}

Result<RankTraining::End> RankGenerations::run() {
  while (true) {
    auto ended = generation();
    if (ended && *ended) return end(**ended);
    while (!ended) {
      if (!may_recover(ended.error())) return tl::make_unexpected(ended.error());
      if (const auto recovered = recover(ended.error()); !recovered)
        ended = tl::make_unexpected(recovered.error());
      else
        ended = std::nullopt;
    }
  }
}

/// Runs one generation and enters the next. None: continue with it.
Result<std::optional<RankTraining::End>> RankGenerations::generation() {
  Json word;
  if (training_) {
    MOTLEY_ASSIGN(const RankTraining::End ended, training_->run(given_step()));
    const bool goes_on = ended == RankTraining::End::kChanged;
    word = Json{{"goes_on", goes_on}, {"is_stopped", ended == RankTraining::End::kStopped}};
    if (goes_on) word["point"] = fields_to_json(training_->point());
    MOTLEY_RETURN_IF_ERROR(tell(word));
  } else {
    MOTLEY_ASSIGN(word, wait_word());
  }
  if (!word.value("goes_on", false))
    return std::optional(word.value("is_stopped", false) ? RankTraining::End::kStopped
                                                         : RankTraining::End::kFinished);
  MOTLEY_RETURN_IF_ERROR(change(word));
  return std::optional<RankTraining::End>();
}

Result<void> RankGenerations::change(const Json& word) {
  MOTLEY_ASSIGN(Next next, orders_->take(process_.patience()));
  // The first rank knows of the latest checkpoint.
  Json said = word;
  if (training_ && !is_lead() && process_.rendezvous) {
    MOTLEY_ASSIGN(said, wait_word());
  }
  MOTLEY_ASSIGN(const TrainingPoint point,
                fields_from_json<TrainingPoint>(said.at("point"), "point"));
  return go_on(std::move(next), point, false);
}

Result<void> RankGenerations::go_on(Next given, TrainingPoint point, bool after_loss) {
  const std::int64_t begin = monotonic_ns();
  entering_.emplace();
  Next& next = entering_->next = std::move(given);
  orders_->set_halt([&next] { next.halt(); });
  const auto fail = [this](Error error) {
    orders_->set_halt(nullptr);
    entering_.reset();
    return tl::make_unexpected(std::move(error));
  };
  if (next.mover) {
    const NoSamples none;
    const auto moved = next.mover->step(point.step, none);
    if (!moved) {
      next.halt();
      return fail(moved.error());
    }
  }
  // The writer of the next checkpoints is on another host and has none yet.
  const std::vector<WorkerDevice>& devices = next.session->job.devices;
  if (!devices.empty() && devices.front().host != point.saved_host) {
    point.saved_step = -1;
    point.saved_path.clear();
  }
  next.handover.point = point;
  next.handover.after_loss = after_loss;
  const std::shared_ptr<const graph::Model> model = next.handover.model;
  if (!next.session->is_idle) {
    auto training = RankTraining::go_on(*next.session, reporter_, std::move(next.handover));
    if (!training) return fail(training.error());
    entering_->training = std::move(*training);
  }
  // A process that leaves the program keeps its tensors until all have theirs.
  const bool moves = next.moving && next.moving->rendezvous;
  const auto begun =
      moves ? next.moving->rendezvous->barrier("begun", process_.patience()) : Result<void>();
  if (!begun) {
    next.halt();
    return begun;
  }
  model_ = model;
  point_ = point;
  enter();
  if (is_lead())
    reporter_.event("change",
                    Json{{"change", number_},
                         {"step", point.step},
                         {"after_loss", after_loss},
                         {"pause_s", static_cast<double>(monotonic_ns() - begin) * 1e-9}});
  return {};
}

/// Completes the previous generation.
void RankGenerations::enter() {
  on_training_(nullptr);  // a signal that comes now is kept for the next one
  orders_->set_halt(nullptr);
  number_ = entering_->next.number;
  has_left_ = entering_->next.moving != nullptr && entering_->next.session->is_idle;
  training_ = std::move(entering_->training);
  entering_->next.mover.reset();
  let_go(std::move(session_), std::move(entering_->next.moving));
  session_ = std::move(entering_->next.session);
  entering_.reset();
  show_present();
}

/// Destroys unused sessions in a thread: closing connections takes tens of milliseconds.
void RankGenerations::let_go(std::unique_ptr<WorkerSession> one,
                             std::unique_ptr<WorkerSession> other) {
  if (letting_go_.joinable()) letting_go_.join();
  letting_go_ = start_quiet_thread([one = std::move(one), other = std::move(other)]() mutable {
    one.reset();
    other.reset();
  });
}

RankGenerations::~RankGenerations() {
  if (letting_go_.joinable()) letting_go_.join();
}

/// Tells whether the loss of others stopped this process.
bool RankGenerations::may_recover(const Error& error) const {
  static constexpr std::array<std::string_view, 8> kLosses = {
      "run.peer-lost", "run.timeout", "run.closed",     "run.stopped",
      "run.halted",    "run.change",  "run.rendezvous", "run.host-lost"};
  return process_.job.changes->is_elastic &&
         std::find(kLosses.begin(), kLosses.end(), error.code) != kLosses.end();
}

RecoveryState RankGenerations::recovery_state() const {
  RecoveryState recovery_state;
  recovery_state.device = process_.device().name;
  recovery_state.generation = number_;
  recovery_state.is_idle = training_ == nullptr;
  recovery_state.has_left = has_left_;
  recovery_state.point = training_ ? training_->point() : point_;
  recovery_state.is_open = training_ && training_->is_in_step();
  recovery_state.may_end = training_ && training_->may_end_step();
  if (entering_) recovery_state.entering = entering_->next.number;
  return recovery_state;
}

Result<void> RankGenerations::recover(const Error& error) {
  if (training_) training_->halt();  // wakes those that wait for this process
  reporter_.event("stalled", Json{{"why", error.message}});
  MOTLEY_ASSIGN(const int halt, orders_->await_halt(process_.patience()));
  Json said = recovery_state_to_json(recovery_state());
  said["halt"] = halt;
  reporter_.event("halted", std::move(said));
  MOTLEY_ASSIGN(const Recovery recovery, orders_->await_recovery(process_.patience()));
  MOTLEY_RETURN_IF_ERROR(settle(recovery));
  MOTLEY_ASSIGN(Next next, orders_->take(process_.patience()));
  next.handover.stops = recovery.stops;
  return go_on(std::move(next), recovery.point, true);
}

/// Brings this process to the point from which all continue.
Result<void> RankGenerations::settle(const Recovery& recovery) {
  if (recovery.from.empty()) {
    if (entering_ && entering_->next.number == recovery.generation) {
      model_ = entering_->training ? entering_->training->model() : model_;
      enter();
    }
    if (training_ && number_ == recovery.generation)
      MOTLEY_RETURN_IF_ERROR(training_->settle(recovery.point.step));
  }
  entering_.reset();
  point_ = recovery.point;
  show_present();
  return {};
}

/// All processes leave together if one of them serves the store.
Result<RankTraining::End> RankGenerations::end(RankTraining::End end) {
  if (!training_)
    reporter_.event(
        "done",
        Json{{"steps", 0}, {"reason", end == RankTraining::End::kStopped ? "stopped" : "idle"}});
  if (process_.rendezvous && process_.rendezvous->options().place)
    MOTLEY_RETURN_IF_ERROR(process_.rendezvous->barrier("over", process_.patience()));
  return end;
}

}  // namespace motley::run
