#include "motley/control/rehearsal.h"

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
#include "motley/control/decision_log.h"
#include "motley/control/placing.h"
#include "motley/control/presence.h"
#include "motley/control/scratch_directory.h"
#include "motley/control/slowed_split.h"
#include "motley/control/trials.h"
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

/// A model but for what operators take.
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

/// What a move takes: its messages. Copies within a device are as nothing beside them.
class MoveCost : public OtherCompute {
 public:
  using OtherCompute::OtherCompute;
  Result<Times> times(const program::DeviceProgram& program) const override {
    return Times{std::vector<Seconds>(program.instructions.size()), {}};
  }
};

/// The same model of steps that count no squares of gradients.
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

/// Says the simulated time.
class SimulatedClock : public Clock {
 public:
  explicit SimulatedClock(const Nanoseconds& now) : now_(now) {}
  Seconds steady() const override { return to_seconds(now_); }
  Seconds calendar() const override { return to_seconds(now_); }

 private:
  const Nanoseconds& now_;
};

/// Passes on what is said; steps are many, and simulated.
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

/// In so many directions gradients vary, all by as much.
constexpr std::size_t kNoiseDimensions = 200;

std::set<std::string> absent_of(const RehearsalChoices& choices) {
  return choices.rent ? absent_devices(choices.rent->machines) : std::set<std::string>();
}

/// A program that steps are done by, for a while.
struct Stint {
  StepByStep steps;
  std::optional<StepByStep> uncounted = {};  ///< that count no squares; none: none was done yet
  std::set<std::string> devices;
  std::vector<program::StepShape> shapes;  // by rank

  explicit Stint(StepByStep made) : steps(std::move(made)), devices(devices_of(steps.program())) {
    for (const program::DeviceProgram& device : steps.program().devices)
      shapes.push_back(program::find_step_shape(device));
  }
};

class Rehearsing {
 public:
  Rehearsing(const ChosenPlan& chosen, Adaptation adaptation, const RehearsalChoices& choices,
             Listener& listener)
      : chosen_(chosen),
        inputs_(chosen.inputs),
        adaptation_(std::move(adaptation)),
        choices_(choices),
        cost_(chosen.priced.costs->model(chosen.inputs.cluster)),
        market_(make_market(chosen, adaptation_, choices)),
        presence_(market_ ? market_->other_absences() : choices.conditions.absences, absent()),
        drawn_(std::vector<double>(kNoiseDimensions, 1), choices.conditions.seed),
        first_batch_(adaptation_.batches ? adaptation_.batches->first : chosen.inputs.global_batch),
        listener_(listener),
        directory_{scratch_.path()},
        job_(make_job()) {
    rehearsed_.policy = adaptation_.policy ? adaptation_.policy->name() : "none";
    const bool may_split = adaptation_.split != nullptr || adaptation_.batch != nullptr;
    if (may_split && (market_ || presence_.next() != nullptr)) mind_presence();
    adapting_.emplace(adaptation_, chosen.inputs, directory_, job_, clock_, listener_);
  }
  Rehearsing(const Rehearsing&) = delete;
  Rehearsing& operator=(const Rehearsing&) = delete;

  Result<Rehearsed> run() {
    MOTLEY_RETURN_IF_ERROR(adapting_->open());
    adapting_->on_event({"ready", 0, {{"first_step", 0}, {"leads", true}}});
    MOTLEY_RETURN_IF_ERROR(enter(adapting_->current().planned.program));
    for (const std::string& device : absent())
      adapting_->observe(policy::LossSeen{device, Seconds(0)}, 0);
    take_market_events();
    while (!is_over() && rehearsed_.stopped.empty()) MOTLEY_RETURN_IF_ERROR(go_on());
    MOTLEY_RETURN_IF_ERROR(adapting_->end(false));
    MOTLEY_ASSIGN(rehearsed_.decisions, read_decisions(directory_.decisions()));
    rehearsed_.total = to_seconds(now_);
    if (market_) rehearsed_.rent = market_->end(rehearsed_.total);
    return std::move(rehearsed_);
  }

 private:
  /// A change that was asked for, and the number of steps before which it begins.
  struct Due {
    run::Change change;
    std::int64_t step = 0;
  };

  /// A step is believed to take what is predicted of the first plan.
  static std::optional<RehearsedMarket> make_market(const ChosenPlan& chosen,
                                                    const Adaptation& adaptation,
                                                    const RehearsalChoices& choices) {
    if (!choices.rent) return std::nullopt;
    const Candidate& first = adaptation.candidates[static_cast<std::size_t>(adaptation.first)];
    const auto predicted = predict(chosen.inputs, first.planned, *chosen.priced.costs, 1);
    const Seconds step = predicted ? predicted->seconds() : Seconds(0);
    return RehearsedMarket(*choices.rent, choices.steps, step, choices.conditions);
  }

  std::set<std::string> absent() const { return absent_of(choices_); }
  const plan::Plan& first_plan() const {
    return adaptation_.candidates[static_cast<std::size_t>(adaptation_.first)].planned.plan;
  }

  run::Job make_job() const {
    run::Job job;
    job.resume = false;
    for (const DeviceId device : inputs_.devices)
      job.devices.push_back(worker_device(inputs_.cluster, device, std::nullopt));
    return job;
  }

  /// The batch is split again where a device of the plan is gone and the policy asks for nothing;
  /// no split has devices that are gone.
  void mind_presence() {
    PresencePolicy::Surroundings around;
    around.uses = [this](const std::string& device) {
      return (due_.empty() ? current_->devices : devices_of(due_.back().change.program))
          .contains(device);
    };
    around.split = [this, first = shares_of(first_plan(), inputs_.cluster)](
                       const std::set<std::string>& gone) -> Result<policy::Action> {
      const Candidate& now = adapting_->current();
      const bool is_whole =
          std::none_of(first.begin(), first.end(),
                       [&](const policy::Share& share) { return gone.contains(share.device); });
      if (is_whole && !market_ && adaptation_.split) return policy::UseSplit{first};
      MOTLEY_ASSIGN(std::vector<policy::Share> shares,
                    find_split(chosen_, {gone, nullptr, now.planned.plan.global_batch}));
      if (adaptation_.split) return policy::UseSplit{std::move(shares)};
      return policy::UseBatch{std::move(shares), now.lr_factor};
    };
    adaptation_.policy = std::make_unique<PresencePolicy>(std::move(adaptation_.policy),
                                                          std::move(around), absent());
    const auto check = [this](const std::vector<policy::Share>& shares) -> Result<void> {
      for (const policy::Share& share : shares)
        if (presence_.gone().contains(share.device) || leaving_.contains(share.device))
          return runtime_error("rehearsal.gone", share.device + " is gone, or will be");
      return {};
    };
    if (adaptation_.split)
      adaptation_.split = [check, split = std::move(adaptation_.split)](
                              const std::vector<policy::Share>& shares) -> Result<Candidate> {
        MOTLEY_RETURN_IF_ERROR(check(shares));
        return split(shares);
      };
    if (adaptation_.batch)
      adaptation_.batch = [check, batch = std::move(adaptation_.batch)](
                              const policy::UseBatch& action) -> Result<Candidate> {
        MOTLEY_RETURN_IF_ERROR(check(action.shares));
        return batch(action);
      };
  }

  /// Steps are counted in samples where the batch changes.
  bool is_over() const {
    return adaptation_.batches ? rehearsed_.samples >= choices_.steps * first_batch_
                               : step_ >= choices_.steps;
  }

  /// What happens next: devices go or come, a change, a step.
  Result<void> go_on() {
    if (release_returned()) return {};
    if (const Presence::Event* next = presence_.next(); next && next->at <= now_) {
      see(presence_.take());
      return {};
    }
    if (share_any(current_->devices, presence_.gone())) {
      if (!due_.empty()) return change();
      wait();
      return {};
    }
    if (std::exchange(is_waiting_, false)) lose(whole_nanoseconds(recovery().restart));
    if (!due_.empty() && due_.front().step <= step_) return change();
    return step();
  }

  const simulate::Recovery& recovery() const { return choices_.conditions.recovery; }

  void lose(Nanoseconds time) {
    now_ += time;
    rehearsed_.lost += to_seconds(time);
  }

  /// Until the next device comes or goes.
  void wait() {
    is_waiting_ = true;
    const Presence::Event* next = presence_.next();
    if (next == nullptr)
      rehearsed_.stopped =
          fmt::format("after {} steps devices are gone for good and no plan is left", step_);
    else
      lose(next->at - now_);
  }

  /// A device went or came, or it is told that it will go.
  void see(const Presence::Event& event) {
    const Seconds at = to_seconds(event.at);
    if (event.what == Presence::What::kNotice) {
      announce(event.device, to_seconds(presence_.find_loss({event.device})->at) - at);
    } else if (event.what == Presence::What::kLoss) {
      listener_.note(fmt::format("step {}: {} is gone", step_, event.device));
      leaving_.erase(event.device);
      if (current_->devices.contains(event.device)) lose(whole_nanoseconds(recovery().detection));
      go_back_if_none_is_left();
      refuse_changes_with(event.device);
      tell(policy::LossSeen{event.device, at});
    } else {
      listener_.note(fmt::format("step {}: {} is there", step_, event.device));
      tell(policy::ArrivalSeen{event.device, at});
    }
  }

  /// It will go, and trains until then or until a plan without it begins.
  void announce(const std::string& device, Seconds left) {
    listener_.note(fmt::format("step {}: {} will be gone", step_, device));
    leaving_.insert(device);
    refuse_changes_with(device);
    tell(policy::NoticeSeen{device, to_seconds(now_), left});
  }

  /// Whoever decides on plans, and whoever rents.
  void tell(const policy::Observation& seen) {
    adapting_->observe(seen, step_);
    take_changes();
    tell_market(seen);
  }

  void tell_market(const policy::Observation& seen) {
    if (!market_) return;
    for (const policy::Choice& choice : market_->observe(seen)) {
      if (said_ != choice.why) listener_.note(fmt::format("step {}: {}", step_, choice.why));
      said_ = choice.why;
      adapting_->record({.policy = std::string(market_->policy().name()), .choice = choice});
    }
    take_market_events();
    if (market_->policy().is_spent()) rehearsed_.stopped = "the budget is spent";
    for (elastic::JobMachine& machine : market_->take_returns()) give_back(std::move(machine));
  }

  void take_market_events() {
    if (!market_) return;
    for (Presence::Event& event : market_->take_events()) presence_.add(std::move(event));
  }

  /// Where no plan is possible without it, it stays.
  void give_back(elastic::JobMachine machine) {
    for (const std::string& device : machine.devices) {
      leaving_.insert(device);
      adapting_->observe(policy::NoticeSeen{device, to_seconds(now_), Seconds(0)}, step_);
      take_changes();
    }
    returned_.push_back(std::move(machine));
  }

  /// Machines that are to be given back, and that no plan has any more, go. Have any?
  bool release_returned() {
    for (auto machine = returned_.begin(); machine != returned_.end(); ++machine) {
      const std::set<std::string> devices(machine->devices.begin(), machine->devices.end());
      if (share_any(current_->devices, devices)) {
        if (!due_.empty()) continue;
        for (const std::string& device : devices) {
          leaving_.erase(device);
          tell(policy::ArrivalSeen{device, to_seconds(now_)});
        }
      } else {
        for (const std::string& device : devices) {
          listener_.note(fmt::format("step {}: {} is given back", step_, device));
          leaving_.erase(device);
          presence_.leave(device);
          tell(policy::LossSeen{device, to_seconds(now_), true});
        }
      }
      returned_.erase(machine);
      return true;
    }
    return false;
  }

  /// Nobody has the state of the last step: it is that of the last checkpoint.
  void go_back_if_none_is_left() {
    const bool is_one_left =
        std::any_of(current_->devices.begin(), current_->devices.end(),
                    [&](const std::string& device) { return !presence_.gone().contains(device); });
    if (is_one_left) return;
    const std::int64_t saved = step_ / recovery().checkpoint_every * recovery().checkpoint_every;
    for (std::int64_t step = saved; step < step_; ++step)
      rehearsed_.lost += Seconds(rehearsed_.step_s[static_cast<std::size_t>(step)]);
    rehearsed_.lost_steps += step_ - saved;
    rehearsed_.step_s.resize(static_cast<std::size_t>(saved));
    taken_.resize(static_cast<std::size_t>(saved) + 1);
    std::tie(rehearsed_.samples, rehearsed_.progress) = taken_.back();
    step_ = saved;
    is_waiting_ = true;
  }

  void refuse_changes_with(const std::string& device) {
    std::deque<Due> kept;
    for (Due& due : std::exchange(due_, {})) {
      if (devices_of(due.change.program).contains(device))
        refuse(due.change.number, device + " is gone");
      else
        kept.push_back(std::move(due));
    }
    for (Due& due : due_) kept.push_back(std::move(due));  // asked for when told of a refusal
    due_ = std::move(kept);
  }

  void refuse(int number, const std::string& why) {
    adapting_->on_event({"refused", 0, {{"change", number}, {"why", why}}});
    take_changes();
  }

  void take_changes() {
    while (auto order = adapting_->next_order())
      if (const auto* count = std::get_if<job::CountEvery>(&*order))
        counts_every_ = count->every;
      else if (auto* change = std::get_if<run::Change>(&*order))
        due_.push_back({std::move(*change), step_ + choices_.change_steps});
  }

  /// Goes on by the next program.
  Result<void> change() {
    const Due due = std::move(due_.front());
    due_.pop_front();
    const auto program = std::make_shared<const program::Program>(due.change.program);
    const std::shared_ptr<Stint> before = current_;
    if (const auto entered = enter(program); !entered) {
      current_ = before;
      refuse(due.change.number, entered.error().message);
      return {};
    }
    MOTLEY_ASSIGN(const Nanoseconds moved, move_time(due.change.move));
    const Nanoseconds pause = moved + whole_nanoseconds(choices_.change_pause);
    now_ += pause;
    rehearsed_.paused += to_seconds(pause);
    ++rehearsed_.changes;
    number_ = due.change.number;
    adapting_->on_event({"change", 0, {{"change", number_}, {"step", step_}}});
    return {};
  }

  Result<Nanoseconds> move_time(const program::Program& move) const {
    const bool is_empty = std::all_of(
        move.devices.begin(), move.devices.end(),
        [](const program::DeviceProgram& device) { return device.instructions.empty(); });
    if (is_empty) return Nanoseconds{0};
    auto tasks = simulate::lay_out_program(move, MoveCost(cost_));
    if (!tasks) return with_context("what a change moves", tasks.error());
    const auto times = simulate::find_times(tasks->graph);
    if (!times) return tl::make_unexpected(simulate::deadlock_error(move, *tasks, times.error()));
    return times->end;
  }

  /// The program that steps are done by, laid out once.
  Result<void> enter(const std::shared_ptr<const program::Program>& program) {
    for (const std::shared_ptr<Stint>& known : stints_) {
      if (known->steps.program() != *program) continue;
      current_ = known;
      return {};
    }
    MOTLEY_ASSIGN(StepByStep steps, StepByStep::make(program, cost_, choices_.conditions));
    current_ = stints_.emplace_back(std::make_shared<Stint>(std::move(steps)));
    return {};
  }

  /// The program that does the next step, with or without counting squares.
  Result<StepByStep*> next_steps() {
    if (step_ % counts_every_ == 0) return &current_->steps;
    if (!current_->uncounted) {
      const auto program = std::make_shared<const program::Program>(current_->steps.program());
      MOTLEY_ASSIGN(StepByStep steps,
                    StepByStep::make(program, WithoutSquares(cost_), choices_.conditions));
      current_->uncounted = std::move(steps);
    }
    return &*current_->uncounted;
  }

  Result<void> step() {
    MOTLEY_ASSIGN(StepByStep * steps, next_steps());
    MOTLEY_ASSIGN(const StepByStep::Times times,
                  steps->run({.step = step_, .attempt = attempts_[step_]}, now_));
    const Presence::Event* loss = presence_.find_loss(current_->devices);
    if (loss != nullptr && loss->at < times.end) {
      ++attempts_[step_];
      ++rehearsed_.lost_steps;
      lose(loss->at - now_);  // what happened until then is seen next
      return {};
    }
    const double step_s = to_seconds(times.end - now_).value;
    now_ = times.end;
    tell_parts(times);
    StepReport report{.step = step_, .steps = choices_.steps};
    report.logged.step_s = step_s;
    report.logged.stint = number_;
    rehearsed_.step_s.push_back(step_s);
    if (adaptation_.batches && step_ % counts_every_ == 0) report.logged.noise = draw_noise();
    note_progress();
    (void)adapting_->step(report);
    ++step_;
    take_changes();
    policy::StepSeen seen{.step = report.step, .at = to_seconds(now_), .took = Seconds(step_s)};
    tell_market(seen);
    return {};
  }

  double noise_scale() const {
    return choices_.noise ? choices_.noise->at(static_cast<double>(rehearsed_.samples)) : 0;
  }

  /// What devices, or micro-batches of one, say of gradients.
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

  /// As workers say what their part of the step consisted of.
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
  const cost::ProfileCost cost_;
  std::optional<RehearsedMarket> market_;
  Presence presence_;
  adapt::DrawnNoise drawn_;
  const std::int64_t first_batch_;  // samples
  NotesOnly listener_;
  Nanoseconds now_ = 0;
  const SimulatedClock clock_{now_};
  const ScratchDirectory scratch_;
  const RunDirectory directory_;
  const run::Job job_;
  std::optional<Adapting> adapting_;
  std::vector<std::shared_ptr<Stint>> stints_;
  std::shared_ptr<Stint> current_;  // that runs
  int number_ = 0;                  // of the change that brought it
  std::int64_t counts_every_ = 1;   // in such steps noise is measured
  std::deque<Due> due_;
  std::int64_t step_ = 0;                                          // steps done
  std::map<std::int64_t, std::int64_t> attempts_;                  // of steps that were lost
  std::vector<std::pair<std::int64_t, double>> taken_ = {{0, 0}};  // samples, progress: after steps
  bool is_waiting_ = false;                                        // for devices
  std::set<std::string> leaving_;                                  // devices, that will go
  std::vector<elastic::JobMachine> returned_;  // that are given back once no plan has them
  std::string said_;                           // of who rents
  Rehearsed rehearsed_;
};

Result<void> check_choices(const ChosenPlan& chosen, const RehearsalChoices& choices) {
  if (!chosen.priced.costs)
    return usage_error("rehearsal.prices", "the plan has no prices, so it cannot be simulated");
  return simulate::check_conditions(choices.conditions, names_of(chosen.inputs), "the cluster");
}

/// It begins with the devices that are there, by the best split of the batch over them.
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

/// The first plan alone; where the batch is decided as it was before gradients were counted.
Adaptation without_policy(const ChosenPlan& chosen, const Adaptation& adaptation) {
  Adaptation still;
  still.candidates.push_back(adaptation.candidates[static_cast<std::size_t>(adaptation.first)]);
  if (adaptation.batches) still.candidates.front().planned = chosen.planned;
  still.split = adaptation.split;
  still.batch = adaptation.batch;  // of the same size
  return still;
}

/// Each step by what is quickest at that time.
class KnowingAll {
 public:
  KnowingAll(const ChosenPlan& chosen, const Adaptation& adaptation,
             const RehearsalChoices& choices)
      : chosen_(chosen),
        adaptation_(adaptation),
        choices_(choices),
        cost_(chosen.priced.costs->model(chosen.inputs.cluster)),
        presence_(choices.conditions.absences) {}

  Result<Rehearsed> run() {
    for (const Candidate& candidate : adaptation_.candidates) {
      MOTLEY_ASSIGN(candidates_.emplace_back(), make_stint(candidate.planned));
    }
    Rehearsed rehearsed{.policy = "clairvoyant"};
    const auto steps = static_cast<std::size_t>(choices_.steps);
    while (rehearsed.step_s.size() < steps) {
      while (presence_.next() != nullptr && presence_.next()->at <= now_) presence_.take();
      MOTLEY_ASSIGN(const std::optional<Nanoseconds> end, find_end(rehearsed.step_s.size()));
      if (end) {
        rehearsed.step_s.push_back(to_seconds(*end - now_).value);
        now_ = *end;
      } else if (presence_.next() == nullptr) {
        rehearsed.stopped = "devices are gone for good and no plan is left";
        break;
      } else {
        rehearsed.lost += to_seconds(presence_.next()->at - now_);
        now_ = presence_.next()->at;
      }
    }
    rehearsed.total = to_seconds(now_);
    return rehearsed;
  }

 private:
  using Stints = std::vector<std::shared_ptr<Stint>>;

  /// None: the plan cannot be had, or its times are not known.
  Result<std::shared_ptr<Stint>> make_stint(Planned planned) const {
    const std::shared_ptr<Stint> none;
    if (!planned.program) {
      MOTLEY_ASSIGN(planned, lower_plan(chosen_.inputs, planned.plan));
    }
    if (!check_memory(chosen_.inputs, planned)) return none;
    auto steps = StepByStep::make(planned.program, cost_, choices_.conditions);
    if (steps) return std::make_shared<Stint>(std::move(*steps));
    if (!steps.error().code.starts_with("cost.")) return tl::make_unexpected(steps.error());
    return none;
  }

  /// When the quickest step from now on ends that no loss interrupts; none: no plan can do it.
  Result<std::optional<Nanoseconds>> find_end(std::size_t step) {
    std::set<std::string> without = presence_.gone();
    std::optional<Nanoseconds> best;
    for (std::size_t before = SIZE_MAX; before != without.size();) {
      before = without.size();
      Stints stints = candidates_;
      MOTLEY_ASSIGN(stints.emplace_back(), best_split(without));
      for (const std::shared_ptr<Stint>& stint : stints) {
        if (stint == nullptr || share_any(stint->devices, presence_.gone())) continue;
        MOTLEY_ASSIGN(const StepByStep::Times times,
                      stint->steps.run({.step = static_cast<std::int64_t>(step)}, now_));
        const Presence::Event* loss = presence_.find_loss(stint->devices);
        if (loss != nullptr && loss->at < times.end)
          without.insert(loss->device);
        else
          best = std::min(best.value_or(times.end), times.end);
      }
    }
    return best;
  }

  /// Of the batch, without some devices and as slow as they are now; null: there is none.
  Result<std::shared_ptr<Stint>> best_split(const std::set<std::string>& without) {
    const std::shared_ptr<Stint> none;
    if (!adaptation_.split) return none;
    const Slowness slowness = slowness_at(choices_.conditions.slow_downs, now_);
    const auto [known, is_new] = splits_.try_emplace({without, slowness});
    if (!is_new) return known->second;
    MOTLEY_ASSIGN(const auto shares, find_split_if_any(chosen_, without, slowness, 0));
    if (!shares) return none;
    MOTLEY_ASSIGN(const Candidate candidate, adaptation_.split(*shares));
    MOTLEY_ASSIGN(known->second, make_stint(candidate.planned));
    return known->second;
  }

  const ChosenPlan& chosen_;
  const Adaptation& adaptation_;
  const RehearsalChoices& choices_;
  const cost::ProfileCost cost_;
  Presence presence_;
  Stints candidates_;
  std::map<std::pair<std::set<std::string>, Slowness>, std::shared_ptr<Stint>> splits_;
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
