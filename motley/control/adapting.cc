#include "motley/control/adapting.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/statistics.h"
#include "motley/base/text.h"
#include "motley/program/program_text.h"
#include "motley/synth/gradient_squares.h"
#include "motley/synth/move.h"

namespace motley::control {
namespace {

constexpr int kPredictedSteps = 3;
constexpr const char* kStart = "start";  // names the first line of a call, which no policy decided

std::string name_of(const cluster::Cluster& cluster, DeviceId device) {
  return cluster.device(device).name;
}

/// What the first line of a call does: where batches change it says which one.
policy::Action first_action(const Adaptation& choices, int current,
                            const cluster::Cluster& cluster) {
  if (!choices.batches) return policy::UsePlan{current};
  const Candidate& runs = choices.candidates[static_cast<std::size_t>(current)];
  return policy::UseBatch{shares_of(runs.planned.plan, cluster), runs.lr_factor};
}

std::vector<std::string> names_of(const std::vector<run::WorkerDevice>& devices) {
  std::vector<std::string> names;
  for (const run::WorkerDevice& device : devices) names.push_back(device.name);
  return names;
}

std::optional<Seconds> outcome_of(const std::vector<policy::Decision>& kept) {
  return kept.empty() ? std::nullopt : kept.front().came;
}

/// What the ranks of a step's plan saw of it: of exchanges the least counts.
void take_parts(const run::WorkerEvent& event, const std::vector<run::WorkerDevice>& devices,
                std::map<std::int64_t, policy::StepSeen>& steps) {
  const auto parts = event.fields.find("parts");
  const auto process = static_cast<std::size_t>(event.rank);
  if (parts == event.fields.end() || process >= devices.size()) return;
  policy::StepSeen& seen = steps[event.fields.value("step", std::int64_t{0})];
  policy::DeviceStep& device = seen.devices.emplace_back();
  device.device = devices[process].name;
  device.ready = parts->value("ready", std::vector<double>());
  device.end = parts->value("end", 0.0);
  device.update = parts->value("update", std::vector<double>());
  const auto exchange = parts->value("exchange", std::vector<double>());
  const double blocking = parts->value("blocking", 0.0);
  const bool is_first = seen.devices.size() == 1;
  seen.exchange.resize(exchange.size());
  for (std::size_t k = 0; k < exchange.size(); ++k)
    seen.exchange[k] = is_first ? exchange[k] : std::min(seen.exchange[k], exchange[k]);
  seen.blocking = is_first ? blocking : std::min(seen.blocking, blocking);
}

/// The run directory's plan is the one that runs.
Result<void> write_plan(const RunDirectory& directory, const Candidate& now,
                        const cluster::Cluster& cluster) {
  MOTLEY_RETURN_IF_ERROR(
      write_file_atomic(directory.plan(), plan::print_plan(now.planned.plan, cluster)));
  MOTLEY_RETURN_IF_ERROR(
      write_file_atomic(directory.program(), program::print_program(*now.planned.program)));
  std::error_code code;
  if (now.predicted)
    return write_file_atomic(directory.predicted(), trace::print_trace(now.predicted->trace));
  std::filesystem::remove(directory.predicted(), code);
  return {};
}

/// Traces lie where the job's processes wrote them; those who read them go by the plan's ranks.
Result<void> settle_traces(const RunDirectory& directory,
                           const std::vector<run::WorkerDevice>& devices,
                           const program::Program& program) {
  std::vector<std::string> texts;
  for (const program::DeviceProgram& device : program.devices) {
    for (std::size_t process = 0; process < devices.size(); ++process) {
      if (devices[process].name != device.device) continue;
      MOTLEY_ASSIGN(texts.emplace_back(), read_file(directory.measured(process)));
    }
  }
  std::error_code code;
  for (std::size_t process = 0; process < devices.size(); ++process)
    std::filesystem::remove(directory.measured(process), code);
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    MOTLEY_RETURN_IF_ERROR(write_file_atomic(directory.measured(rank), texts[rank]));
  return {};
}

/// Does it split nothing but the batch, but that not into equal micro-batches?
bool has_unlike_micro_batches(const plan::Plan& plan) {
  const std::int64_t times = plan.replicas.front().micro_batches;
  bool is_unlike = false;
  for (const plan::Replica& each : plan.replicas) {
    if (each.regions.size() > 1 || each.regions.front().devices.size() > 1) return false;
    is_unlike = is_unlike || each.micro_batches != times || each.samples % times != 0;
  }
  return is_unlike && plan.state_shares.empty();
}

}  // namespace

std::string describe_plan(const plan::Plan& plan, const cluster::Cluster& cluster) {
  const std::vector<plan::Member> members = plan::members(plan);
  const std::int64_t passes = plan.replicas.front().micro_batches;
  const std::string in_passes = passes == 1 ? "" : fmt::format(" in {} micro-batches", passes);
  if (members.size() == 1) return name_of(cluster, members[0].device) + " alone" + in_passes;
  const bool is_unlike = has_unlike_micro_batches(plan);
  if (plan::has_stages(plan) && !is_unlike) {
    std::size_t stages = 0;
    for (const plan::Replica& replica : plan.replicas)
      stages = std::max(stages, replica.regions.size());
    return fmt::format("{} replica{} of up to {} stage{}", plan.replicas.size(),
                       plan.replicas.size() == 1 ? "" : "s", stages, stages == 1 ? "" : "s");
  }
  std::vector<std::string> shares;
  for (const plan::Member& member : members) shares.push_back(std::to_string(member.samples));
  return (plan::splits_operators(plan) ? "operators split over samples " : "the batch split ") +
         join(shares, ":") + (is_unlike ? " in unlike micro-batches" : in_passes);
}

Result<void> lower_candidate(const Inputs& inputs, const Adaptation& adaptation,
                             Candidate& candidate) {
  MOTLEY_ASSIGN(Planned planned, lower_plan(inputs, candidate.planned.plan));
  const bool may_count = planned.program->devices.size() > 1 ||
                         candidate.planned.plan.replicas.front().micro_batches > 1;
  if (adaptation.counts_squares && may_count) {
    MOTLEY_ASSIGN(program::Program program,
                  synth::with_gradient_squares(*planned.program, planned.plan));
    planned.program = std::make_shared<const program::Program>(std::move(program));
  }
  candidate.planned = std::move(planned);
  return {};
}

void predict_candidate(const Inputs& inputs, const Adaptation& adaptation, Candidate& candidate) {
  if (!adaptation.costs) return;
  if (auto predicted = predict(inputs, candidate.planned, *adaptation.costs, kPredictedSteps))
    candidate.predicted = std::move(*predicted);
}

std::vector<policy::Share> shares_of(const plan::Plan& plan, const cluster::Cluster& cluster) {
  std::vector<policy::Share> shares;
  for (const plan::Member& member : plan::members(plan))
    shares.push_back({name_of(cluster, member.device), member.samples});
  return shares;
}

std::vector<DeviceId> Adaptation::devices() const {
  if (succeeds) return succeeds->devices;
  std::vector<DeviceId> devices;
  const auto add = [&](DeviceId device) {
    if (std::find(devices.begin(), devices.end(), device) == devices.end())
      devices.push_back(device);
  };
  const auto add_all = [&](const Candidate& candidate) {
    for (const plan::Member& member : plan::members(candidate.planned.plan)) add(member.device);
  };
  add_all(candidates[static_cast<std::size_t>(first)]);
  for (const Candidate& candidate : candidates) add_all(candidate);
  for (const DeviceId device : spare) add(device);
  return devices;
}

Adapting::Adapting(Adaptation& adaptation, const Inputs& inputs, const RunDirectory& directory,
                   const run::Job& job, const Clock& clock, Listener& listener)
    : choices_(adaptation),
      candidates_(adaptation.candidates),
      inputs_(inputs),
      directory_(directory),
      job_(job),
      clock_(clock),
      listener_(listener),
      current_(adaptation.first),
      begun_({{0, adaptation.first}}),
      tells_counting_(adaptation.counts_every > 1),
      found_(adaptation.candidates.size()),
      devices_(names_of(job.devices), adaptation.absent),
      absences_(adaptation.absences),
      coordinator_(!adaptation.heritage.is_null()) {
  if (!adaptation.replan) return;
  members_.emplace(devices_, Seconds(job.timeout_s));
  if (adaptation.succeeds) take_over();
}

Result<void> Adapting::open() {
  std::error_code code;
  if (!job_.resume)
    for (const std::string& file : {directory_.decisions(), directory_.newcomers()})
      std::filesystem::remove(file, code);
  if (std::filesystem::exists(directory_.decisions())) {
    MOTLEY_ASSIGN(const std::string text, read_file(directory_.decisions()));
    settled_ = text.rfind('\n') + 1;  // a line that a killed process left is cut off
  }
  for (std::size_t i = 0; i < choices_.given.size(); ++i)
    (void)ask(choices_.given_candidates[i], choices_.given[i]);
  // Who is there may be others than when the policy's state was kept.
  if (choices_.policy && members_)
    for (const run::WorkerDevice& device : job_.devices) {
      const bool is_absent = job_.changes && job_.changes->is_absent(device.name);
      observe(is_absent ? policy::Observation(policy::LossSeen{device.name, Seconds(0)})
                        : policy::ArrivalSeen{device.name, Seconds(0)},
              0);
    }
  return {};
}

/// A decision on the plan: no more comes of the one before it.
void Adapting::keep(policy::Decision decision) {
  write_decisions();
  std::error_code code;
  if (!kept_.empty()) settled_ = std::filesystem::file_size(directory_.decisions(), code);
  kept_.clear();
  decision.plan = plan::print_plan(current().planned.plan, inputs_.cluster);
  kept_.push_back(std::move(decision));
  write_decisions();
}

void Adapting::write_decisions() {
  if (kept_.empty()) return;
  const std::string path = directory_.decisions();
  std::error_code code;
  if (std::filesystem::exists(path, code)) std::filesystem::resize_file(path, settled_, code);
  std::ofstream file(path, std::ios::app | std::ios::binary);
  for (const policy::Decision& decision : kept_) file << policy::print_decision(decision) << '\n';
  file.close();
  if (code || file.fail()) listener_.note("warning: " + path + ": decisions cannot be written");
}

/// What came of the last decision: of the steps done so, the first of which is like no other.
void Adapting::note_outcome() {
  if (steps_.size() < 2) return;
  const Seconds usual(median({steps_.begin() + 1, steps_.end()}));
  candidates_[static_cast<std::size_t>(current_)].measured = usual;
  if (!kept_.empty()) kept_.front().came = usual;
}

Wish Adapting::step(const StepReport& report) {
  const Wish wish = listener_.step(report);
  const auto begun = begun_.find(report.logged.stint);
  if (begun == begun_.end()) return wish;
  spent_ += report.logged.step_s;
  done_ = report.step + 1;
  steps_.push_back(report.logged.step_s);
  const bool is_first = steps_.size() == 1;  // of its program: memory is touched, caches are cold
  const auto parts = seen_.extract(report.step);
  seen_.erase(seen_.begin(), seen_.lower_bound(report.step));
  if (choices_.policy == nullptr) return wish;
  policy::StepSeen seen = parts && !is_first ? std::move(parts.mapped()) : policy::StepSeen();
  seen.step = report.step;
  seen.at = Seconds(spent_);
  seen.took = Seconds(report.logged.step_s);
  seen.plan = begun->second;
  const plan::Plan& plan = candidates_[static_cast<std::size_t>(begun->second)].planned.plan;
  seen.global_batch = plan.global_batch;
  const std::vector<plan::Member> members = plan::members(plan);
  for (policy::DeviceStep& device : seen.devices)
    for (const plan::Member& member : members)
      if (name_of(inputs_.cluster, member.device) == device.device) device.samples = member.samples;
  take(choices_.policy->observe(seen), report.step + 1);
  if (report.logged.noise) take(choices_.policy->observe(*report.logged.noise), report.step + 1);
  return wish;
}

void Adapting::take(std::vector<policy::Choice> choices, std::int64_t steps_done) {
  for (policy::Choice& choice : choices) {
    if (const auto* tell = std::get_if<policy::Tell>(&choice.action)) {
      choice.why = tell->device + ": " + tell->text;
      listener_.note(fmt::format("step {}: {}", steps_done, choice.why));
      record({.policy = std::string(choices_.policy->name()), .choice = std::move(choice)});
      continue;
    }
    if (const auto* noise = std::get_if<policy::MeasureNoise>(&choice.action)) {
      choices_.counts_every = noise->every;
      tells_counting_ = true;
      choice.why =
          (noise->every == 1 ? "noise is measured in every step: "
                             : fmt::format("noise is measured once in {} steps: ", noise->every)) +
          choice.why;
      listener_.note(fmt::format("step {}: {}", steps_done, choice.why));
      record({.policy = std::string(choices_.policy->name()), .choice = std::move(choice)});
      continue;
    }
    const auto found = find_candidate(choice.action);
    if (!found) {
      listener_.note("not possible: " + found.error().message);
      take(choices_.policy->observe(policy::RefusalSeen{-1, current_, found.error().message}),
           steps_done);
      continue;
    }
    const int plan = *found;
    policy::Decision decision{.policy = std::string(choices_.policy->name()),
                              .seen_step = steps_done,
                              .at = Seconds(spent_),
                              .choice = std::move(choice),
                              .begins = steps_done};
    if (plan == current_ && asked_.empty()) {
      decision.choice.why = current().label + ": " + decision.choice.why;
      listener_.note(fmt::format("step {}: goes on, {}", steps_done, decision.choice.why));
      note_outcome();
      decision.before = outcome_of(kept_);
      keep(std::move(decision));
      continue;
    }
    (void)ask(plan, std::move(decision));
  }
}

void Adapting::record(policy::Decision decision) {
  decision.seen_step = decision.begins = done_;
  decision.at = Seconds(spent_);
  kept_.push_back(std::move(decision));
  write_decisions();
}

void Adapting::observe(const policy::Observation& seen, std::int64_t steps_done) {
  if (choices_.policy) take(choices_.policy->observe(seen), steps_done);
}

/// That of an action, made where there is none yet.
Result<int> Adapting::find_candidate(const policy::Action& action) {
  if (const auto* use = std::get_if<policy::UsePlan>(&action)) return use->plan;
  if (const auto* batch = std::get_if<policy::UseBatch>(&action); batch && choices_.batch)
    return keep_candidate(choices_.batch(*batch));
  const auto* split = std::get_if<policy::UseSplit>(&action);
  if (split == nullptr || choices_.split == nullptr)
    return runtime_error("policy.action", "this training cannot do what the policy asks for: " +
                                              policy::action_to_json(action).dump());
  return keep_candidate(choices_.split(split->shares));
}

/// Its number: that of an equal one where there is one.
Result<int> Adapting::keep_candidate(Result<Candidate> made) {
  MOTLEY_RETURN_IF_ERROR(made);
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& known = candidates_[i];
    if (known.planned.plan != made->planned.plan || known.lr_factor != made->lr_factor) continue;
    if (!candidates_[i].planned.program) {
      candidates_[i].planned = std::move(made->planned);
      candidates_[i].evaluations = std::move(made->evaluations);
    }
    return static_cast<int>(i);
  }
  candidates_.push_back(std::move(*made));
  return static_cast<int>(candidates_.size()) - 1;
}

/// Has it prepared. The error that was told: it cannot be had.
Result<void> Adapting::ask(int candidate, policy::Decision decision) {
  // From what runs when it begins: the one before it that was asked for, or else the current one.
  const int before = asked_.empty() ? current_ : asked_.rbegin()->second.candidate;
  Result<run::Change> change =
      may_begin(candidate)
          ? make_change(before, candidate, {})
          : runtime_error("adapt.absent", candidates_[static_cast<std::size_t>(candidate)].label +
                                              ": some of its devices are not there, or too few "
                                              "have the model");
  if (!change) {
    listener_.note("warning: " + change.error().message);
    if (choices_.policy)
      take(choices_.policy->observe(
               policy::RefusalSeen{candidate, current_, change.error().message}),
           decision.seen_step);
    return tl::make_unexpected(change.error());
  }
  change->after = asked_.empty() ? begun_.rbegin()->first : asked_.rbegin()->first;
  change->number = ++number_;
  numbered_[number_] = candidate;
  asked_[number_] = {candidate, std::move(decision)};
  ready_.push_back(std::move(*change));
  return {};
}

Result<void> Adapting::make_programs(Candidate& candidate) const {
  if (candidate.planned.program) return {};
  Candidate made = candidate;
  MOTLEY_RETURN_IF_ERROR(lower_candidate(inputs_, choices_, made));
  MOTLEY_RETURN_IF_ERROR(check_memory(inputs_, made.planned));
  if (choices_.complete) MOTLEY_RETURN_IF_ERROR(choices_.complete(made));
  if (!made.predicted) predict_candidate(inputs_, choices_, made);
  candidate = std::move(made);
  return {};
}

/// While processes start nobody waits for the programs of plans that are to be tried. Where
/// another led they have started, and wait.
void Adapting::make_ahead() {
  if (done_ > 0 || !steps_.empty() || choices_.succeeds) return;
  // What is wrong with one is said when it is asked for.
  if (made_ahead_ < found_) (void)make_programs(candidates_[made_ahead_++]);
}

/// All of a change but the move and its numbers.
Result<run::Change> Adapting::begin_change(int candidate) {
  Candidate& to = candidates_[static_cast<std::size_t>(candidate)];
  MOTLEY_RETURN_IF_ERROR(make_programs(to));
  run::Change change;
  if (members_) change.processes = devices_.living();
  change.program = *to.planned.program;
  change.evaluations = to.evaluations;
  change.lr_factor = to.lr_factor;
  change.devices = run::devices_of(change.program, job_.devices);
  return change;
}

/// `lost`: devices of either that have nothing of the one's tensors any more.
Result<run::Change> Adapting::make_change(int before, int candidate,
                                          const std::set<std::string>& lost) {
  Candidate& from = candidates_[static_cast<std::size_t>(before)];
  Candidate& to = candidates_[static_cast<std::size_t>(candidate)];
  MOTLEY_RETURN_IF_ERROR(make_programs(from));
  MOTLEY_ASSIGN(run::Change change, begin_change(candidate));
  synth::MoveOptions options;
  std::map<std::string, std::string> hosts;
  for (const run::WorkerDevice& device : job_.devices) hosts[device.name] = device.host;
  options.host_of = [&](const std::string& name) { return hosts[name]; };
  const auto is_there = [&](const std::string& name) { return !members_ || devices_.lives(name); };
  for (const program::Program* each : {to.planned.program.get(), from.planned.program.get()})
    for (const program::DeviceProgram& device : each->devices)
      if (is_there(device.device) && std::find(options.devices.begin(), options.devices.end(),
                                               device.device) == options.devices.end())
        options.devices.push_back(device.device);
  for (const std::string& name : options.devices)
    if (lost.contains(name)) options.lost.insert(name);
  MOTLEY_ASSIGN(synth::Move move,
                synth::lower_move(*from.planned.program, *to.planned.program, options));
  change.move = std::move(move.program);
  change.moving = run::devices_of(change.move, job_.devices);
  return change;
}

std::optional<job::Order> Adapting::next_order() {
  make_ahead();
  if (auto held = coordinator_.take_held()) return held;
  return coordinator_.first(find_order(), [this] { return will(); });
}

std::optional<job::Order> Adapting::find_order() {
  if (members_) {
    if (choices_.succeeds && !std::exchange(leads_on_, true)) lead_on();
    follow_absences();
    const Seconds now = clock_.steady();
    if (auto order = members_->next(now)) return order;
    if (const auto standings = members_->still()) return go_on_after_halt(*standings);
    coordinator_.forget();
    if (!members_->is_training()) return std::nullopt;
    for (int process = 0; asked_.empty() && process < devices_.size(); ++process)
      if (std::exchange(devices_[process].awaits_generation, false))
        return job::Follow{process, begun_.rbegin()->first};
    take_arrivals();
  }
  if (std::exchange(tells_counting_, false)) return job::CountEvery{choices_.counts_every};
  if (ready_.empty()) return std::nullopt;
  run::Change change = std::move(ready_.front());
  ready_.pop_front();
  for (const int process : change.processes) devices_[process].was_told = true;
  return change;
}

void Adapting::on_event(const run::WorkerEvent& event) {
  const Json& fields = event.fields;
  if (event.event == "leads") coordinator_.hear();
  if (event.event == "step") take_parts(event, job_.devices, seen_);
  if (members_) note_membership(event);
  if (event.event == "ready" && fields.value("leads", event.rank == 0)) {
    const std::int64_t first = fields.value("first_step", std::int64_t{0});
    keep({.policy = kStart,
          .seen_step = first,
          .choice = {first_action(choices_, current_, inputs_.cluster), std::nullopt,
                     current().label},
          .begins = first});
    look_ahead();
  }
  if (event.event == "checkpoint") {
    saved_.saved_path = fields.value("path", "");
    saved_.saved_step = fields.value("step", std::int64_t{-1});
  }
  if (event.event == "checkpoint" && choices_.policy != nullptr) {
    const std::string path = fields.value("path", "") + "/policy.json";
    if (const auto written = write_file_atomic(path, policy_text()); !written)
      listener_.note("warning: " + written.error().message);
  }
  if (event.event != "change" && event.event != "refused") return;
  const auto asked = asked_.find(fields.value("change", 0));
  if (asked == asked_.end()) return;
  AskedChange what = std::move(asked->second);
  asked_.erase(asked);
  if (event.event == "refused") {
    const std::string why = fields.value("why", "");
    listener_.note(fmt::format("{} cannot be had: {}",
                               candidates_[static_cast<std::size_t>(what.candidate)].label, why));
    stay_as_they_are();
    if (choices_.policy)
      take(choices_.policy->observe(policy::RefusalSeen{what.candidate, current_, why}),
           what.decision.seen_step);
    return;
  }
  note_outcome();
  what.decision.before = outcome_of(kept_);
  what.decision.came.reset();
  what.decision.begins = fields.value("step", std::int64_t{0});
  what.decision.choice.why =
      candidates_[static_cast<std::size_t>(what.candidate)].label + ": " + what.decision.choice.why;
  listener_.note(fmt::format("step {}: {}", what.decision.begins, what.decision.choice.why));
  const int before = std::exchange(current_, what.candidate);
  begun_[fields.value("change", 0)] = current_;
  steps_.clear();
  settle_membership(what.decision.begins, Seconds(fields.value("pause_s", 0.0)));
  look_ahead();
  if (asked_.empty() && before != current_) {
    Candidate& over = candidates_[static_cast<std::size_t>(before)];
    over.planned.program.reset();
    over.evaluations.clear();
  }
  keep(std::move(what.decision));
  if (const auto written = write_plan(directory_, current(), inputs_.cluster); !written)
    listener_.note("warning: " + written.error().message);
}

/// Who has come stays idle, and who wanted to leave stays, until devices change again.
void Adapting::stay_as_they_are() {
  for (job::DeviceState& device : devices_.all()) device.awaits_plan = false;
  devices_.stay();
}

/// The state of the policy, and of which plans it speaks: those that were there when it began, and
/// the one that runs.
std::string Adapting::policy_text() const {
  Json plans = Json::array();
  const auto add = [&](const Candidate& candidate) {
    plans.push_back(plan::print_plan(candidate.planned.plan, inputs_.cluster));
  };
  for (std::size_t i = 0; i < found_; ++i) add(candidates_[i]);
  const bool is_found = static_cast<std::size_t>(current_) < found_;
  if (!is_found) add(current());
  return Json{{"schema", kPolicySchema},
              {"policy", choices_.policy->name()},
              {"current", is_found ? current_ : static_cast<int>(found_)},
              {"plans", std::move(plans)},
              {"lr_factor", current().lr_factor},
              {"counts_every", choices_.counts_every},
              {"state", choices_.policy->state()}}
      .dump();
}

std::vector<run::WorkerDevice> Adapting::current_devices() const {
  return run::devices_of(*current().planned.program, job_.devices);
}

Result<void> Adapting::end(bool has_traces) {
  note_outcome();
  write_decisions();
  return has_traces ? settle_traces(directory_, job_.devices, *current().planned.program)
                    : Result<void>();
}

Result<std::vector<policy::Decision>> read_decisions(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  std::vector<policy::Decision> decisions;
  std::size_t number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    MOTLEY_ASSIGN(decisions.emplace_back(),
                  policy::parse_decision(line, fmt::format("{}:{}", path, number)));
  }
  return decisions;
}

}  // namespace motley::control
