#include "motley/control/rehearsal/rehearsal.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "motley/adapt/drawn_noise.h"
#include "motley/adapt/learning_rate.h"
#include "motley/base/json.h"
#include "motley/control/clock.h"
#include "motley/control/planning/placing.h"
#include "motley/control/planning/slowed_split.h"
#include "motley/control/scratch_directory.h"
#include "motley/control/training/availability_trace.h"
#include "motley/control/training/decision_log.h"
#include "motley/control/training/machine_renting.h"
#include "motley/control/training/trials.h"
#include "motley/control/workers.h"
#include "motley/program/square_count.h"
#include "motley/program/step_parts.h"
#include "motley/simulate/drawn_times.h"
#include "motley/simulate/step_by_step.h"

namespace motley::control {
namespace {

using simulate::StepByStep;
using simulate::whole_nanoseconds;
using trace::Nanoseconds;

/// Passes on all times of a model except those of operators.
class OtherCompute : public cost::CostModel {
 public:
  explicit OtherCompute(const cost::CostModel& model) : model_(model) {}
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override {
    return model_.collective_time(op, bytes, devices);
  }
  Result<cost::Transfer> transfer(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override {
    return model_.transfer(op, bytes, devices);
  }
  std::vector<double> link_capacities() const override { return model_.link_capacities(); }

 protected:
  const cost::CostModel& model_;
};

/// The cost of a move: its messages. Copies within a device are negligible.
class MoveCost : public OtherCompute {
 public:
  using OtherCompute::OtherCompute;
  Result<Times> times(const program::DeviceProgram& program) const override {
    return Times{std::vector<Seconds>(program.instructions.size()), {}};
  }
};

/// The cost of steps without computing square norms of gradients.
class WithoutSquares : public OtherCompute {
 public:
  using OtherCompute::OtherCompute;
  Result<Times> times(const program::DeviceProgram& program) const override {
    MOTLEY_ASSIGN(Times times, model_.times(program));
    for (std::size_t i = 0; i < times.seconds.size(); ++i)
      if (program::counts_squares(program.instructions[i])) times.seconds[i] = Seconds(0);
    return times;
  }
  double interference(const std::string& device,
                      const std::vector<std::string>& group) const override {
    return model_.interference(device, group);
  }
};

class SimulatedClock : public Clock {
 public:
  explicit SimulatedClock(const Nanoseconds& now) : now_(now) {}
  Seconds steady() const override { return to_seconds(now_); }
  Seconds calendar() const override { return to_seconds(now_); }

 private:
  const Nanoseconds& now_;
};

/// Passes on notes but not steps, which are many and simulated.
class NotesOnly : public SilentListener {
 public:
  explicit NotesOnly(Listener& listener) : listener_(listener) {}
  void note(const std::string& line) override { listener_.note(line); }

 private:
  Listener& listener_;
};

std::vector<std::string> names_of(const Inputs& inputs) {
  std::vector<std::string> names;
  for (const DeviceId device : inputs.devices) names.push_back(inputs.cluster.device(device).name);
  return names;
}

std::set<std::string> devices_of(const program::Program& program) {
  std::set<std::string> devices;
  for (const program::DeviceProgram& device : program.devices) devices.insert(device.device);
  return devices;
}

bool share_any(const std::set<std::string>& some, const std::set<std::string>& others) {
  return std::any_of(some.begin(), some.end(),
                     [&](const std::string& each) { return others.contains(each); });
}

/// Dimensions in which gradients vary, all equally.
constexpr std::size_t kNoiseDimensions = 200;

std::set<std::string> absent_of(const RehearsalChoices& choices) {
  return choices.rent ? absent_devices(choices.rent->machines) : std::set<std::string>();
}

struct Generation {
  StepByStep steps;
  std::optional<StepByStep> uncounted = {};  ///< computes no squares; none: not needed yet
  std::set<std::string> devices;
  std::vector<program::StepShape> shapes;  // by rank

  explicit Generation(StepByStep made)
      : steps(std::move(made)), devices(devices_of(steps.program())) {
    for (const program::DeviceProgram& device : steps.program().devices)
      shapes.push_back(program::find_step_shape(device));
  }
};

/// Knows the step of each checkpoint of a rehearsal, which has no files.
class RehearsedAdapting : public Adapting {
 public:
  using Adapting::Adapting;
  std::int64_t saved_step = 0;

 private:
  run::Recovery open_checkpoint(const std::string&) override {
    run::Recovery recovery;
    recovery.from = saved_step > 0 ? "the last checkpoint" : "new";
    recovery.point.step = recovery.point.saved_step = recovery.point.evaluated_step = saved_step;
    return recovery;
  }
};

/// A job with simulated processes, which passes losses and arrivals to Adapting and obeys its
/// orders. A job that ended because devices are missing restarts when they return.
class Rehearsing {
 public:
  Rehearsing(const ChosenPlan& chosen, Adaptation adaptation, const RehearsalChoices& choices,
             Listener& listener)
      : chosen_(chosen),
        inputs_(chosen.inputs),
        adaptation_(std::move(adaptation)),
        choices_(choices),
        cost_(chosen.priced.costs->model(chosen.inputs.cluster)),
        market_(make_market()),
        availability_(market_ ? market_->other_absences() : choices.conditions.absences,
                      absent_of(choices)),
        drawn_(std::vector<double>(kNoiseDimensions, 1), choices.conditions.seed),
        first_batch_(adaptation_.batches ? adaptation_.batches->first : chosen.inputs.global_batch),
        listener_(listener),
        directory_{scratch_.path()} {
    rehearsed_.policy = adaptation_.policy ? adaptation_.policy->name() : "none";
    const bool may_split = adaptation_.split != nullptr || adaptation_.batch != nullptr;
    const bool may_change = market_ || availability_.next() != nullptr;
    if (may_split && may_change && !adaptation_.replan) adaptation_.replan = make_replan();
    for (const DeviceId device : inputs_.devices)
      job_.devices.push_back(worker_device(inputs_.cluster, device, std::nullopt));
    job_.resume = false;
    job_.changes = run::Changes{.is_elastic = adaptation_.replan != nullptr};
  }
  Rehearsing(const Rehearsing&) = delete;
  Rehearsing& operator=(const Rehearsing&) = delete;

  Result<Rehearsed> run() {
    take_market_events();
    MOTLEY_RETURN_IF_ERROR(begin());
    while (!is_done() && rehearsed_.stopped.empty()) MOTLEY_RETURN_IF_ERROR(go_on());
    MOTLEY_RETURN_IF_ERROR(adapting_->end(false));
    MOTLEY_ASSIGN(rehearsed_.decisions, read_decisions(directory_.decisions()));
    rehearsed_.total = to_seconds(now_);
    if (market_) rehearsed_.rent = market_->end(rented_->policy(), rehearsed_.total);
    return std::move(rehearsed_);
  }

 private:
  /// A pending change, and the step count at which it begins.
  struct Due {
    run::Change change;
    std::int64_t step = 0;
  };

  const simulate::Recovery& recovery() const { return choices_.conditions.recovery; }

  /// Plans for the present devices as a run does: with the first plan, or the best split over them.
  Replan make_replan() {
    const Candidate& first = adaptation_.candidates[static_cast<std::size_t>(adaptation_.first)];
    return [this, first = shares_of(first.planned.plan, inputs_.cluster)](
               const std::vector<DeviceId>& devices, const BatchNow& batch) -> Result<Candidate> {
      DeviceSetting setting{.batch = batch.samples};
      for (const DeviceId each : inputs_.devices)
        if (std::find(devices.begin(), devices.end(), each) == devices.end())
          setting.gone.insert(inputs_.cluster.device(each).name);
      const bool is_whole = std::none_of(
          first.begin(), first.end(),
          [&](const policy::Share& share) { return setting.gone.contains(share.device); });
      if (is_whole && !market_ && adaptation_.split) return adaptation_.split(first);
      MOTLEY_ASSIGN(std::vector<policy::Share> shares, find_split(chosen_, setting));
      return adaptation_.split ? adaptation_.split(shares)
                               : adaptation_.batch({std::move(shares), batch.lr_factor});
    };
  }

  /// Returns the renting policy, which expects the predicted step of the first plan.
  elastic::JobRenting renting_policy() const {
    const RentRehearsal& rent = *choices_.rent;
    const Candidate& first = adaptation_.candidates[static_cast<std::size_t>(adaptation_.first)];
    const auto predicted = predict(inputs_, first.planned, *chosen_.priced.costs, 1);
    return make_renting(rent.question, rent.machines, rent.choices, choices_.steps,
                        predicted ? predicted->seconds() : Seconds(0));
  }
  std::optional<RehearsedMarket> make_market() const {
    if (!choices_.rent) return std::nullopt;
    return RehearsedMarket(renting_policy(), choices_.conditions);
  }

  Result<void> begin() {
    adaptation_.absent = {availability_.gone().begin(), availability_.gone().end()};
    job_.changes->absent = adaptation_.absent;
    adapting_.emplace(adaptation_, inputs_, directory_, job_, clock_, listener_);
    if (market_ && !rented_) rented_.emplace(renting_policy(), *market_, *adapting_);
    MOTLEY_RETURN_IF_ERROR(adapting_->open());
    MOTLEY_RETURN_IF_ERROR(enter(adapting_->current().planned.program));
    has_ended_ = false;
    number_ = 0;
    due_.clear();
    running_.clear();
    for (int process = 0; process < std::ssize(job_.devices); ++process)
      if (!availability_.gone().contains(name_of(process))) running_.insert(process);
    const int lead = *running_.begin();
    for (const int process : running_)
      adapting_->on_event({"ready", process, {{"first_step", step_}, {"leads", process == lead}}});
    obey();
    return {};
  }

  bool is_done() const {
    return adaptation_.batches ? rehearsed_.samples >= choices_.steps * first_batch_
                               : step_ >= choices_.steps;
  }

  /// Handles the next event: a device that leaves or joins, a change, a step.
  Result<void> go_on() {
    if (const AvailabilityTrace::Event* next = availability_.next(); next && next->at <= now_) {
      see(availability_.take());
      return {};
    }
    if (has_ended_) return begin_again();
    if (!due_.empty() && due_.front().step <= step_) return change();
    return step();
  }

  void lose(Nanoseconds time) {
    now_ += time;
    rehearsed_.lost += to_seconds(time);
  }

  /// Restarts a job that ended because devices were missing, once there is a plan.
  Result<void> begin_again() {
    std::vector<DeviceId> there;
    for (const DeviceId device : inputs_.devices)
      if (!availability_.gone().contains(inputs_.cluster.device(device).name))
        there.push_back(device);
    auto plan = find_plan(there);
    if (!plan) {
      const AvailabilityTrace::Event* next = availability_.next();
      if (next == nullptr)
        rehearsed_.stopped =
            fmt::format("after {} steps devices are gone for good and no plan is left", step_);
      else
        lose(next->at - now_);
      return {};
    }
    MOTLEY_RETURN_IF_ERROR(adapting_->end(false));
    adaptation_.first = *plan;
    Candidate& first = adaptation_.candidates[static_cast<std::size_t>(*plan)];
    if (!first.planned.program)
      MOTLEY_RETURN_IF_ERROR(lower_candidate(inputs_, adaptation_, first));
    lose(whole_nanoseconds(recovery().restart));
    job_.resume = true;
    return begin();
  }

  /// Returns a candidate for the present devices.
  Result<int> find_plan(const std::vector<DeviceId>& there) {
    const Candidate& now = adapting_->current();
    if (there.empty()) return runtime_error("run.nobody-left", "nobody is there");
    if (!adaptation_.replan) {
      if (share_any(current_->devices, availability_.gone()))
        return runtime_error("rehearsal.gone", "a device of the plan is gone");
      return adapting_->current_index();
    }
    MOTLEY_ASSIGN(Candidate made,
                  adaptation_.replan(there, {now.planned.plan.global_batch, now.lr_factor}));
    adaptation_.candidates.push_back(std::move(made));
    return static_cast<int>(adaptation_.candidates.size()) - 1;
  }

  /// The step of the last checkpoint: periodic, or where a job stopped.
  std::int64_t saved_step() const {
    return std::max(stopped_at_, step_ / recovery().checkpoint_every * recovery().checkpoint_every);
  }

  /// Drops the steps since that checkpoint.
  void go_back(std::int64_t saved) {
    for (std::int64_t step = saved; step < step_; ++step)
      rehearsed_.lost += Seconds(rehearsed_.step_s[static_cast<std::size_t>(step)]);
    rehearsed_.lost_steps += step_ - saved;
    rehearsed_.step_s.resize(static_cast<std::size_t>(saved));
    taken_.resize(static_cast<std::size_t>(saved) + 1);
    std::tie(rehearsed_.samples, rehearsed_.progress) = taken_.back();
    step_ = saved;
  }

  void see(const AvailabilityTrace::Event& event) {
    const std::string& device = event.device;
    const int process = process_of(device);
    if (event.what == AvailabilityTrace::What::kNotice) {
      listener_.note(fmt::format("step {}: {} will be gone", step_, device));
      const Seconds left = to_seconds(availability_.find_loss({device})->at - event.at);
      if (rented_) rented_->hear(device, to_seconds(now_), left);
      release(device);
    } else if (event.what == AvailabilityTrace::What::kLoss) {
      const bool recovers = !due_.empty() && due_.front().change.recovery;
      if (running_.contains(process) && current_->devices.contains(device) && !recovers)
        lose(whole_nanoseconds(recovery().detection));
      end_process(process);
    } else if (!has_ended_) {
      if (const auto taken = adapting_->take_in(device); !taken)
        listener_.note(taken.error().message);
    }
    obey();
    look_at_market();
  }

  /// Handles a notice like a run. A device that the others cannot do without stays until its loss.
  void release(const std::string& device) {
    if (const auto left = adapting_->release(device); !left) listener_.note(left.error().message);
  }

  void end_process(int process) {
    if (running_.erase(process) == 0) return;
    adapting_->saved_step = saved_step();
    const Error why{ErrorKind::kRuntime, "run.worker-lost", "it went away"};
    if (!adapting_->on_loss(process, why)) end_job();
  }

  void end_job() {
    has_ended_ = true;
    due_.clear();
    go_back(saved_step());
  }

  void look_at_market() {
    if (!rented_) return;
    rented_->see_machines(to_seconds(now_));
    take_market_events();
    if (rented_->is_spent()) rehearsed_.stopped = "the budget is spent";
    obey();
  }

  void take_market_events() {
    if (!market_) return;
    for (const std::string& device : market_->take_left()) availability_.leave(device);
    for (AvailabilityTrace::Event& event : market_->take_events())
      availability_.add(std::move(event));
  }

  void obey() {
    while (auto order = adapting_->next_order()) {
      if (const auto* count = std::get_if<job::CountEvery>(&*order)) counts_every_ = count->every;
      if (std::holds_alternative<job::Halt>(*order))
        stand_still(std::get<job::Halt>(*order).number);
      if (const auto* kill = std::get_if<job::KillProcess>(&*order)) end_process(kill->process);
      if (const auto* start = std::get_if<job::StartProcess>(&*order)) {
        running_.insert(start->process);
        adapting_->on_event({"ready", start->process, {{"idle", true}, {"leads", false}}});
      }
      if (auto* change = std::get_if<run::Change>(&*order)) {
        const std::int64_t steps = change->recovery ? 0 : choices_.change_steps;
        due_.push_back({std::move(*change), step_ + steps});
      }
    }
    if (adapting_->fault() && !has_ended_) end_job();
  }

  /// Devices of the program halt before the next step; the others hold nothing.
  void stand_still(int halt) {
    due_.clear();
    for (const int process : running_) {
      run::RecoveryState recovery_state;
      recovery_state.device = name_of(process);
      recovery_state.generation = number_;
      recovery_state.is_idle = !current_->devices.contains(recovery_state.device);
      recovery_state.is_open = recovery_state.may_end = false;
      recovery_state.point.step = step_;
      recovery_state.point.samples = rehearsed_.samples;
      Json said = run::recovery_state_to_json(recovery_state);
      said["halt"] = halt;
      adapting_->on_event({"halted", process, std::move(said)});
    }
  }

  Result<void> change() {
    const Due due = std::move(due_.front());
    due_.pop_front();
    const std::optional<run::Recovery>& recovered = due.change.recovery;
    const auto program = std::make_shared<const program::Program>(due.change.program);
    const std::shared_ptr<Generation> before = current_;
    if (const auto entered = enter(program); !entered) {
      if (recovered) return entered;  // it would be requested again
      current_ = before;
      adapting_->on_event(
          {"refused", lead(), {{"change", due.change.number}, {"why", entered.error().message}}});
      obey();
      return {};
    }
    if (recovered && !recovered->from.empty()) {
      go_back(recovered->point.step);
      lose(whole_nanoseconds(recovery().restart));
    }
    MOTLEY_ASSIGN(const Nanoseconds moved, move_time(due.change.move));
    const Nanoseconds pause = moved + whole_nanoseconds(choices_.change_pause);
    now_ += pause;
    rehearsed_.paused += to_seconds(pause);
    ++rehearsed_.changes;
    number_ = due.change.number;
    adapting_->on_event({"change", lead(), {{"change", number_}, {"step", step_}}});
    obey();
    if (recovered && recovered->stops) {
      stopped_at_ = step_;
      end_job();
    }
    look_at_market();
    return {};
  }

  int lead() const { return *running_.begin(); }

  Result<Nanoseconds> move_time(const program::Program& move) const {
    const bool is_empty = std::all_of(
        move.devices.begin(), move.devices.end(),
        [](const program::DeviceProgram& device) { return device.instructions.empty(); });
    if (is_empty) return Nanoseconds{0};
    auto tasks = simulate::lay_out_program(move, MoveCost(*cost_));
    if (!tasks) return with_context("what a change moves", tasks.error());
    const auto times = simulate::find_times(tasks->graph);
    if (!times) return tl::make_unexpected(simulate::deadlock_error(move, *tasks, times.error()));
    return times->end;
  }

  /// Sets the running program; each is laid out once.
  Result<void> enter(const std::shared_ptr<const program::Program>& program) {
    for (const std::shared_ptr<Generation>& known : generations_) {
      if (known->steps.program() != *program) continue;
      current_ = known;
      return {};
    }
    MOTLEY_ASSIGN(StepByStep steps, StepByStep::make(program, *cost_, choices_.conditions));
    current_ = generations_.emplace_back(std::make_shared<Generation>(std::move(steps)));
    return {};
  }

  /// Returns the program of the next step, with or without computing squares.
  Result<StepByStep*> next_steps() {
    if (step_ % counts_every_ == 0) return &current_->steps;
    if (!current_->uncounted) {
      const auto program = std::make_shared<const program::Program>(current_->steps.program());
      MOTLEY_ASSIGN(StepByStep steps,
                    StepByStep::make(program, WithoutSquares(*cost_), choices_.conditions));
      current_->uncounted = std::move(steps);
    }
    return &*current_->uncounted;
  }

  Result<void> step() {
    MOTLEY_ASSIGN(StepByStep * steps, next_steps());
    MOTLEY_ASSIGN(const StepByStep::Times times,
                  steps->run({.step = step_, .attempt = attempts_[step_]}, now_));
    const AvailabilityTrace::Event* loss = availability_.find_loss(current_->devices);
    if (loss != nullptr && loss->at < times.end) {
      ++attempts_[step_];
      ++rehearsed_.lost_steps;
      lose(loss->at - now_);  // earlier events are handled next
      return {};
    }
    const double step_s = to_seconds(times.end - now_).value;
    now_ = times.end;
    tell_parts(times);
    StepReport report{.step = step_, .steps = choices_.steps};
    report.logged.step_s = step_s;
    report.logged.generation = number_;
    rehearsed_.step_s.push_back(step_s);
    if (adaptation_.batches && step_ % counts_every_ == 0) report.logged.noise = draw_noise();
    note_progress();
    (void)adapting_->step(report);
    ++step_;
    obey();
    if (rented_)
      rented_->observe(
          policy::StepSeen{.step = report.step, .at = to_seconds(now_), .took = Seconds(step_s)});
    look_at_market();
    return {};
  }

  double noise_scale() const {
    return choices_.noise ? choices_.noise->at(static_cast<double>(rehearsed_.samples)) : 0;
  }

  /// Draws the reports on gradients of several devices, or of one device's micro-batches.
  policy::NoiseSeen draw_noise() {
    const plan::Plan& plan = adapting_->current().planned.plan;
    std::vector<std::int64_t> pieces;
    if (plan.replicas.size() == 1) {
      for (const plan::Stretch& each : plan::find_stretches(plan.replicas.front(), 0))
        pieces.push_back(each.count);
    } else {
      for (const plan::Member& member : plan::members(plan)) pieces.push_back(member.samples);
    }
    policy::NoiseSeen seen = drawn_.draw({1, noise_scale()}, pieces);
    seen.step = step_;
    return seen;
  }

  void note_progress() {
    rehearsed_.batch = current_->steps.program().global_batch;
    rehearsed_.progress += adapt::batch_gain(static_cast<double>(rehearsed_.batch),
                                             static_cast<double>(first_batch_), noise_scale());
    rehearsed_.samples += rehearsed_.batch;
    taken_.emplace_back(rehearsed_.samples, rehearsed_.progress);
  }

  void tell_parts(const StepByStep::Times& times) {
    const program::Program& program = current_->steps.program();
    for (std::size_t rank = 0; rank < program.devices.size(); ++rank) {
      const program::StepShape& shape = current_->shapes[rank];
      const std::vector<double>& took = times.took[rank];
      std::vector<double> worked(took.size());
      double sum = 0;
      for (std::size_t i = 0; i < took.size(); ++i)
        worked[i] = sum += shape.computes[i] ? took[i] : 0;
      const program::StepParts parts = program::find_step_parts(shape, worked, took);
      adapting_->on_event({"step",
                           process_of(program.devices[rank].device),
                           {{"step", step_},
                            {"parts",
                             {{"ready", parts.ready},
                              {"end", parts.end},
                              {"update", parts.update},
                              {"exchange", parts.exchange},
                              {"blocking", parts.blocking}}}}});
    }
  }

  const std::string& name_of(int process) const {
    return job_.devices[static_cast<std::size_t>(process)].name;
  }
  int process_of(const std::string& device) const {
    const auto found =
        std::find_if(job_.devices.begin(), job_.devices.end(),
                     [&](const run::WorkerDevice& each) { return each.name == device; });
    return static_cast<int>(found - job_.devices.begin());
  }

  const ChosenPlan& chosen_;
  const Inputs& inputs_;
  Adaptation adaptation_;
  const RehearsalChoices& choices_;
  const std::unique_ptr<const cost::CostModel> cost_;
  std::optional<RehearsedMarket> market_;
  AvailabilityTrace availability_;
  adapt::DrawnNoise drawn_;
  const std::int64_t first_batch_;
  NotesOnly listener_;
  Nanoseconds now_ = 0;
  const SimulatedClock clock_{now_};
  const ScratchDirectory scratch_;
  const RunDirectory directory_;
  run::Job job_;
  std::optional<RehearsedAdapting> adapting_;
  std::optional<MachineRenting> rented_;
  std::vector<std::shared_ptr<Generation>> generations_;
  std::shared_ptr<Generation> current_;
  int number_ = 0;                 // of the change that brought it
  std::int64_t counts_every_ = 1;  // noise is measured every this many steps
  std::deque<Due> due_;
  std::set<int> running_;
  bool has_ended_ = false;  // the job ended because devices are missing
  std::int64_t step_ = 0;
  std::int64_t stopped_at_ = 0;  // step at which the job stopped with a checkpoint
  std::map<std::int64_t, std::int64_t> attempts_;  // of steps that were lost
  // Samples and progress, by steps done.
  std::vector<std::pair<std::int64_t, double>> taken_ = {{0, 0}};
  Rehearsed rehearsed_;
};

Result<void> check_choices(const ChosenPlan& chosen, const RehearsalChoices& choices) {
  if (!chosen.priced.costs)
    return usage_error("rehearsal.prices", "the plan has no prices, so it cannot be simulated");
  return simulate::check_conditions(choices.conditions, names_of(chosen.inputs), "the cluster");
}

/// Begins with the present devices, by the best split of the batch over them.
Result<void> leave_out(const ChosenPlan& chosen, const std::set<std::string>& absent,
                       Adaptation& adaptation) {
  if (absent.empty()) return {};
  if (!adaptation.split && !adaptation.batch)
    return usage_error("rehearsal.absent", "where devices are absent the batch is split again");
  const Candidate& planned = adaptation.candidates[static_cast<std::size_t>(adaptation.first)];
  MOTLEY_ASSIGN(std::vector<policy::Share> shares,
                find_split(chosen, {absent, nullptr, planned.planned.plan.global_batch}));
  MOTLEY_ASSIGN(Candidate first, adaptation.split
                                     ? adaptation.split(shares)
                                     : adaptation.batch({std::move(shares), planned.lr_factor}));
  MOTLEY_RETURN_IF_ERROR(lower_candidate(chosen.inputs, adaptation, first));
  adaptation.candidates = {std::move(first)};
  adaptation.first = 0;
  return {};
}

/// Returns the first plan alone; with adaptive batches, its program without computing squares.
Adaptation without_policy(const ChosenPlan& chosen, const Adaptation& adaptation) {
  Adaptation still;
  still.candidates.push_back(adaptation.candidates[static_cast<std::size_t>(adaptation.first)]);
  if (adaptation.batches) still.candidates.front().planned = chosen.planned;
  still.split = adaptation.split;
  still.batch = adaptation.batch;  // of the same size
  return still;
}

class KnowingAll {
 public:
  KnowingAll(const ChosenPlan& chosen, const Adaptation& adaptation,
             const RehearsalChoices& choices)
      : chosen_(chosen),
        adaptation_(adaptation),
        choices_(choices),
        cost_(chosen.priced.costs->model(chosen.inputs.cluster)),
        availability_(choices.conditions.absences) {}

  Result<Rehearsed> run() {
    for (const Candidate& candidate : adaptation_.candidates) {
      MOTLEY_ASSIGN(candidates_.emplace_back(), make_generation(candidate.planned));
    }
    Rehearsed rehearsed{.policy = "clairvoyant"};
    const auto steps = static_cast<std::size_t>(choices_.steps);
    while (rehearsed.step_s.size() < steps) {
      while (availability_.next() != nullptr && availability_.next()->at <= now_)
        availability_.take();
      MOTLEY_ASSIGN(const std::optional<Nanoseconds> end, find_end(rehearsed.step_s.size()));
      if (end) {
        rehearsed.step_s.push_back(to_seconds(*end - now_).value);
        now_ = *end;
      } else if (availability_.next() == nullptr) {
        rehearsed.stopped = "devices are gone for good and no plan is left";
        break;
      } else {
        rehearsed.lost += to_seconds(availability_.next()->at - now_);
        now_ = availability_.next()->at;
      }
    }
    rehearsed.total = to_seconds(now_);
    return rehearsed;
  }

 private:
  using RankGenerations = std::vector<std::shared_ptr<Generation>>;

  /// None: the plan is not possible, or a time is unknown.
  Result<std::shared_ptr<Generation>> make_generation(Planned planned) const {
    const std::shared_ptr<Generation> none;
    if (!planned.program) {
      MOTLEY_ASSIGN(planned, lower_plan(chosen_.inputs, planned.plan));
    }
    if (!check_memory(chosen_.inputs, planned)) return none;
    auto steps = StepByStep::make(planned.program, *cost_, choices_.conditions);
    if (steps) return std::make_shared<Generation>(std::move(*steps));
    if (!steps.error().code.starts_with("cost.")) return tl::make_unexpected(steps.error());
    return none;
  }

  /// End of the fastest step from now on that no loss interrupts; none: no plan can do it.
  Result<std::optional<Nanoseconds>> find_end(std::size_t step) {
    std::set<std::string> without = availability_.gone();
    std::optional<Nanoseconds> best;
    for (std::size_t before = SIZE_MAX; before != without.size();) {
      before = without.size();
      RankGenerations generations = candidates_;
      MOTLEY_ASSIGN(generations.emplace_back(), best_without(without));
      for (const std::shared_ptr<Generation>& generation : generations) {
        if (generation == nullptr || share_any(generation->devices, availability_.gone())) continue;
        MOTLEY_ASSIGN(const StepByStep::Times times,
                      generation->steps.run({.step = static_cast<std::int64_t>(step)}, now_));
        const AvailabilityTrace::Event* loss = availability_.find_loss(generation->devices);
        if (loss != nullptr && loss->at < times.end)
          without.insert(loss->device);
        else
          best = std::min(best.value_or(times.end), times.end);
      }
    }
    return best;
  }

  /// Returns the best plan without some devices, a split at the current slowness; null: there is
  /// none.
  Result<std::shared_ptr<Generation>> best_without(const std::set<std::string>& without) {
    const std::shared_ptr<Generation> none;
    if (!adaptation_.split && (!adaptation_.replan || without.empty())) return none;
    const Slowness slowness = slowness_at(choices_.conditions.slow_downs, now_);
    const auto [known, is_new] = plans_.try_emplace({without, slowness});
    if (!is_new) return known->second;
    MOTLEY_ASSIGN(const std::optional<Candidate> candidate,
                  adaptation_.split ? split_without(without, slowness) : replan_without(without));
    if (!candidate) return none;
    MOTLEY_ASSIGN(known->second, make_generation(candidate->planned));
    return known->second;
  }

  Result<std::optional<Candidate>> split_without(const std::set<std::string>& without,
                                                 const Slowness& slowness) const {
    MOTLEY_ASSIGN(const auto shares, find_split_if_any(chosen_, without, slowness, 0));
    if (!shares) return std::nullopt;
    MOTLEY_ASSIGN(Candidate candidate, adaptation_.split(*shares));
    return candidate;
  }

  Result<std::optional<Candidate>> replan_without(const std::set<std::string>& without) const {
    std::vector<DeviceId> there;
    for (const DeviceId device : chosen_.inputs.devices)
      if (!without.contains(chosen_.inputs.cluster.device(device).name)) there.push_back(device);
    if (there.empty()) return std::nullopt;
    auto made = adaptation_.replan(there, {chosen_.planned.plan.global_batch, 1});
    if (!made) return std::nullopt;  // nothing fits them
    return *std::move(made);
  }

  const ChosenPlan& chosen_;
  const Adaptation& adaptation_;
  const RehearsalChoices& choices_;
  const std::unique_ptr<const cost::CostModel> cost_;
  AvailabilityTrace availability_;
  RankGenerations candidates_;
  std::map<std::pair<std::set<std::string>, Slowness>, std::shared_ptr<Generation>> plans_;
  Nanoseconds now_ = 0;
};

}  // namespace

double Rehearsed::steps_per_second() const {
  return total.value > 0 ? static_cast<double>(step_s.size()) / total.value : 0;
}

Result<Rehearsed> rehearse(const ChosenPlan& chosen, Adaptation adaptation,
                           const RehearsalChoices& choices, Listener& listener) {
  MOTLEY_RETURN_IF_ERROR(check_choices(chosen, choices));
  MOTLEY_RETURN_IF_ERROR(leave_out(chosen, absent_of(choices), adaptation));
  MOTLEY_ASSIGN(const bool decides, limit_trials(choices.steps, adaptation));
  if (!decides) adaptation = without_policy(chosen, adaptation);
  return Rehearsing(chosen, std::move(adaptation), choices, listener).run();
}

Result<Rehearsed> rehearse_as_planned(const ChosenPlan& chosen, const Adaptation& adaptation,
                                      const RehearsalChoices& choices, Listener& listener) {
  MOTLEY_RETURN_IF_ERROR(check_choices(chosen, choices));
  Adaptation still = without_policy(chosen, adaptation);
  MOTLEY_RETURN_IF_ERROR(leave_out(chosen, absent_of(choices), still));
  return Rehearsing(chosen, std::move(still), choices, listener).run();
}

Result<Rehearsed> rehearse_knowing_all(const ChosenPlan& chosen, const Adaptation& adaptation,
                                       const RehearsalChoices& choices) {
  MOTLEY_RETURN_IF_ERROR(check_choices(chosen, choices));
  return KnowingAll(chosen, adaptation, choices).run();
}

}  // namespace motley::control
