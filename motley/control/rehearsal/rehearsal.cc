#include "motley/control/rehearsal/rehearsal.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "motley/adapt/drawn_noise.h"
#include "motley/adapt/learning_rate.h"
#include "motley/base/json.h"
#include "motley/control/planning/placing.h"
#include "motley/control/planning/slowed_split.h"
#include "motley/control/rehearsal/rehearsed_course.h"
#include "motley/control/rehearsal/rehearsed_programs.h"
#include "motley/control/scratch_directory.h"
#include "motley/control/training/availability_trace.h"
#include "motley/control/training/decision_log.h"
#include "motley/control/training/machine_renting.h"
#include "motley/control/training/trials.h"
#include "motley/control/workers.h"
#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

using simulate::whole_nanoseconds;
using trace::Nanoseconds;

/// Passes on notes but not steps, which are many and simulated.
class NotesOnly : public SilentListener {
 public:
  explicit NotesOnly(Listener& listener) : listener_(listener) {}
  void note(const std::string& line) override { listener_.note(line); }

 private:
  Listener& listener_;
};

/// Dimensions in which gradients vary, all equally.
constexpr std::size_t kNoiseDimensions = 200;

std::set<std::string> absent_of(const RehearsalChoices& choices) {
  return choices.rent ? absent_devices(choices.rent->machines) : std::set<std::string>();
}

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

/// Plans for the present devices as a run does: with the first plan if all of its devices are there
/// and `keeps_first`, or the best split over them.
Replan make_replan(const ChosenPlan& chosen, const Adaptation& adaptation, bool keeps_first) {
  const Candidate& first = adaptation.candidates[static_cast<std::size_t>(adaptation.first)];
  return [&inputs = chosen.inputs, &chosen, keeps_first, split = adaptation.split,
          remake = adaptation.batch, first = shares_of(first.planned.plan, chosen.inputs.cluster)](
             const std::vector<DeviceId>& devices, const BatchNow& batch) -> Result<Candidate> {
    DeviceSetting setting{.batch = batch.samples};
    for (const DeviceId each : inputs.devices)
      if (std::find(devices.begin(), devices.end(), each) == devices.end())
        setting.gone.insert(inputs.cluster.device(each).name);
    const bool is_whole = std::none_of(first.begin(), first.end(), [&](const policy::Share& share) {
      return setting.gone.contains(share.device);
    });
    if (is_whole && keeps_first && split) return split(first);
    MOTLEY_ASSIGN(std::vector<policy::Share> shares, find_split(chosen, setting));
    return split ? split(shares) : remake({std::move(shares), batch.lr_factor});
  };
}

/// Returns the renting policy, which expects the predicted step of the first plan.
elastic::JobRenting rent_at_first(const ChosenPlan& chosen, const Adaptation& adaptation,
                                  const RehearsalChoices& choices) {
  const RentRehearsal& rent = *choices.rent;
  const Candidate& first = adaptation.candidates[static_cast<std::size_t>(adaptation.first)];
  const auto predicted = predict(chosen.inputs, first.planned, *chosen.priced.costs, 1);
  return make_renting(rent.question, rent.machines, rent.choices, choices.steps,
                      predicted ? predicted->seconds() : Seconds(0));
}

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
        programs_(chosen.priced.costs->model(chosen.inputs.cluster), choices.conditions),
        market_(choices.rent ? std::optional<RehearsedMarket>(
                                   std::in_place, rent_at_first(chosen, adaptation_, choices),
                                   choices.conditions)
                             : std::nullopt),
        availability_(market_ ? market_->other_absences() : choices.conditions.absences,
                      absent_of(choices)),
        drawn_(std::vector<double>(kNoiseDimensions, 1), choices.conditions.seed),
        first_batch_(adaptation_.batches ? adaptation_.batches->first : chosen.inputs.global_batch),
        listener_(listener),
        directory_{scratch_.path()} {
    course_.result.policy = adaptation_.policy ? adaptation_.policy->name() : "none";
    const bool may_split = adaptation_.split != nullptr || adaptation_.batch != nullptr;
    const bool may_change = market_ || availability_.next() != nullptr;
    if (may_split && may_change && !adaptation_.replan)
      adaptation_.replan = make_replan(chosen, adaptation_, !market_);
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
    while (!is_done() && course_.result.stopped.empty()) MOTLEY_RETURN_IF_ERROR(go_on());
    MOTLEY_RETURN_IF_ERROR(adapting_->end(false));
    MOTLEY_ASSIGN(course_.result.decisions, read_decisions(directory_.decisions()));
    course_.result.total = to_seconds(course_.now());
    if (market_) course_.result.rent = market_->end(rented_->policy(), course_.result.total);
    return std::move(course_.result);
  }

 private:
  /// A pending change, and the step count at which it begins.
  struct Due {
    run::Change change;
    std::int64_t step = 0;
  };

  const simulate::Recovery& recovery() const { return choices_.conditions.recovery; }

  Result<void> begin() {
    adaptation_.absent = {availability_.gone().begin(), availability_.gone().end()};
    job_.changes->absent = adaptation_.absent;
    adapting_.emplace(adaptation_, inputs_, directory_, job_, course_, listener_);
    if (market_ && !rented_)
      rented_.emplace(rent_at_first(chosen_, adaptation_, choices_), *market_, *adapting_);
    MOTLEY_RETURN_IF_ERROR(adapting_->open());
    MOTLEY_RETURN_IF_ERROR(programs_.enter(adapting_->current().planned.program));
    has_ended_ = false;
    number_ = 0;
    due_.clear();
    running_.clear();
    for (int process = 0; process < std::ssize(job_.devices); ++process)
      if (!availability_.gone().contains(name_of(process))) running_.insert(process);
    const int lead = *running_.begin();
    for (const int process : running_)
      adapting_->on_event(
          {"ready", process, {{"first_step", course_.step()}, {"leads", process == lead}}});
    obey();
    return {};
  }

  bool is_done() const {
    return adaptation_.batches ? course_.result.samples >= choices_.steps * first_batch_
                               : course_.step() >= choices_.steps;
  }

  /// Handles the next event: a device that leaves or joins, a change, a step.
  Result<void> go_on() {
    if (const AvailabilityTrace::Event* next = availability_.next();
        next && next->at <= course_.now()) {
      see(availability_.take());
      return {};
    }
    if (has_ended_) return begin_again();
    if (!due_.empty() && due_.front().step <= course_.step()) return change();
    return step();
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
        course_.result.stopped = fmt::format(
            "after {} steps devices are gone for good and no plan is left", course_.step());
      else
        course_.lose(next->at - course_.now());
      return {};
    }
    MOTLEY_RETURN_IF_ERROR(adapting_->end(false));
    adaptation_.first = *plan;
    Candidate& first = adaptation_.candidates[static_cast<std::size_t>(*plan)];
    if (!first.planned.program)
      MOTLEY_RETURN_IF_ERROR(lower_candidate(inputs_, adaptation_, first));
    course_.lose(whole_nanoseconds(recovery().restart));
    job_.resume = true;
    return begin();
  }

  /// Returns a candidate for the present devices.
  Result<int> find_plan(const std::vector<DeviceId>& there) {
    const Candidate& now = adapting_->current();
    if (there.empty()) return runtime_error("run.nobody-left", "nobody is there");
    if (!adaptation_.replan) {
      if (programs_.current().uses_any(availability_.gone()))
        return runtime_error("rehearsal.gone", "a device of the plan is gone");
      return adapting_->current_index();
    }
    MOTLEY_ASSIGN(Candidate made,
                  adaptation_.replan(there, {now.planned.plan.global_batch, now.lr_factor}));
    adaptation_.candidates.push_back(std::move(made));
    return static_cast<int>(adaptation_.candidates.size()) - 1;
  }

  void see(const AvailabilityTrace::Event& event) {
    const std::string& device = event.device;
    const int process = process_of(device);
    if (event.what == AvailabilityTrace::What::kNotice) {
      listener_.note(fmt::format("step {}: {} will be gone", course_.step(), device));
      const Seconds left = to_seconds(availability_.find_loss({device})->at - event.at);
      if (rented_) rented_->hear(device, to_seconds(course_.now()), left);
      release(device);
    } else if (event.what == AvailabilityTrace::What::kLoss) {
      const bool recovers = !due_.empty() && due_.front().change.recovery;
      if (running_.contains(process) && programs_.current().devices.contains(device) && !recovers)
        course_.lose(whole_nanoseconds(recovery().detection));
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
    adapting_->saved_step = course_.saved_step(recovery().checkpoint_every);
    const Error why{ErrorKind::kRuntime, "run.worker-lost", "it went away"};
    if (!adapting_->on_loss(process, why)) end_job();
  }

  void end_job() {
    has_ended_ = true;
    due_.clear();
    course_.go_back(course_.saved_step(recovery().checkpoint_every));
  }

  void look_at_market() {
    if (!rented_) return;
    rented_->see_machines(to_seconds(course_.now()));
    take_market_events();
    if (rented_->is_spent()) course_.result.stopped = "the budget is spent";
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
        due_.push_back({std::move(*change), course_.step() + steps});
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
      recovery_state.is_idle = !programs_.current().devices.contains(recovery_state.device);
      recovery_state.is_open = recovery_state.may_end = false;
      recovery_state.point.step = course_.step();
      recovery_state.point.samples = course_.result.samples;
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
    if (const auto entered = programs_.enter(program); !entered) {
      if (recovered) return entered;  // it would be requested again
      adapting_->on_event(
          {"refused", lead(), {{"change", due.change.number}, {"why", entered.error().message}}});
      obey();
      return {};
    }
    if (recovered && !recovered->from.empty()) {
      course_.go_back(recovered->point.step);
      course_.lose(whole_nanoseconds(recovery().restart));
    }
    MOTLEY_ASSIGN(const Nanoseconds moved, programs_.move_time(due.change.move));
    course_.change(moved + whole_nanoseconds(choices_.change_pause));
    number_ = due.change.number;
    adapting_->on_event({"change", lead(), {{"change", number_}, {"step", course_.step()}}});
    obey();
    if (recovered && recovered->stops) {
      course_.stop();
      end_job();
    }
    look_at_market();
    return {};
  }

  int lead() const { return *running_.begin(); }

  Result<void> step() {
    const RehearsedPrograms::Which which{.step = course_.step(), .attempt = course_.attempt()};
    const bool counts = which.step % counts_every_ == 0;  // square norms of gradients
    MOTLEY_ASSIGN(const RehearsedPrograms::Times times,
                  counts ? programs_.run(which, course_.now())
                         : programs_.run_uncounted(which, course_.now()));
    const AvailabilityTrace::Event* loss = availability_.find_loss(programs_.current().devices);
    if (loss != nullptr && loss->at < times.end) {
      course_.lose_step(loss->at - course_.now());  // earlier events are handled next
      return {};
    }
    const double noise = noise_scale();
    const std::int64_t batch = programs_.current().steps.program().global_batch;
    StepReport report{.step = which.step, .steps = choices_.steps};
    report.logged.step_s = course_.end_step(
        times.end, batch,
        adapt::batch_gain(static_cast<double>(batch), static_cast<double>(first_batch_), noise));
    tell_parts(times, which.step);
    report.logged.generation = number_;
    if (adaptation_.batches && counts) report.logged.noise = draw_noise(noise, which.step);
    (void)adapting_->step(report);
    obey();
    if (rented_)
      rented_->observe(policy::StepSeen{.step = report.step,
                                        .at = to_seconds(course_.now()),
                                        .took = Seconds(report.logged.step_s)});
    look_at_market();
    return {};
  }

  double noise_scale() const {
    return choices_.noise ? choices_.noise->at(static_cast<double>(course_.result.samples)) : 0;
  }

  /// Draws the reports on gradients of several devices, or of one device's micro-batches.
  policy::NoiseSeen draw_noise(double scale, std::int64_t step) {
    const plan::Plan& plan = adapting_->current().planned.plan;
    std::vector<std::int64_t> pieces;
    if (plan.replicas.size() == 1) {
      for (const plan::Stretch& each : plan::find_stretches(plan.replicas.front(), 0))
        pieces.push_back(each.count);
    } else {
      for (const plan::Member& member : plan::members(plan)) pieces.push_back(member.samples);
    }
    policy::NoiseSeen seen = drawn_.draw({1, scale}, pieces);
    seen.step = step;
    return seen;
  }

  void tell_parts(const RehearsedPrograms::Times& times, std::int64_t step) {
    const RehearsedProgram& program = programs_.current();
    const std::vector<program::StepParts> all = program.find_parts(times);
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      const program::StepParts& parts = all[rank];
      adapting_->on_event({"step",
                           process_of(program.steps.program().devices[rank].device),
                           {{"step", step},
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
  RehearsedPrograms programs_;
  std::optional<RehearsedMarket> market_;
  AvailabilityTrace availability_;
  adapt::DrawnNoise drawn_;
  const std::int64_t first_batch_;
  NotesOnly listener_;
  RehearsedCourse course_;
  const ScratchDirectory scratch_;
  const RunDirectory directory_;
  run::Job job_;
  std::optional<RehearsedAdapting> adapting_;
  std::optional<MachineRenting> rented_;
  int number_ = 0;                 // of the change that brought it
  std::int64_t counts_every_ = 1;  // noise is measured every this many steps
  std::deque<Due> due_;
  std::set<int> running_;
  bool has_ended_ = false;  // the job ended because devices are missing
};

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

}  // namespace

double Rehearsed::steps_per_second() const {
  return total.value > 0 ? static_cast<double>(step_s.size()) / total.value : 0;
}

Result<Rehearsed> rehearse(const ChosenPlan& chosen, Adaptation adaptation,
                           const RehearsalChoices& choices, Listener& listener) {
  MOTLEY_RETURN_IF_ERROR(check_rehearsal(chosen, choices.conditions));
  MOTLEY_RETURN_IF_ERROR(leave_out(chosen, absent_of(choices), adaptation));
  MOTLEY_ASSIGN(const bool decides, limit_trials(choices.steps, adaptation));
  if (!decides) adaptation = without_policy(chosen, adaptation);
  return Rehearsing(chosen, std::move(adaptation), choices, listener).run();
}

Result<Rehearsed> rehearse_as_planned(const ChosenPlan& chosen, const Adaptation& adaptation,
                                      const RehearsalChoices& choices, Listener& listener) {
  MOTLEY_RETURN_IF_ERROR(check_rehearsal(chosen, choices.conditions));
  Adaptation still = without_policy(chosen, adaptation);
  MOTLEY_RETURN_IF_ERROR(leave_out(chosen, absent_of(choices), still));
  return Rehearsing(chosen, std::move(still), choices, listener).run();
}

}  // namespace motley::control
