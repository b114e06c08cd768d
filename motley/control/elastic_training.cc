// What of Adapting is for devices that are lost, come or leave.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/control/adapting.h"
#include "motley/control/mirroring.h"
#include "motley/control/newcomer.h"
#include "motley/control/succeeding.h"
#include "motley/run/checkpoint.h"
#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

constexpr const char* kMembership = "membership";  // decides where no policy does

/// Errors of one process from which the others may go on: what a machine does, not the training.
bool is_of_a_device(const Error& error) {
  static constexpr std::array<std::string_view, 12> kCodes = {
      "run.worker-lost", "run.host-lost", "run.peer-lost",  "run.timeout",
      "run.closed",      "run.halted",    "run.stopped",    "run.out-of-memory",
      "run.unsettled",   "run.change",    "run.rendezvous", "run.shared-memory"};
  return std::find(kCodes.begin(), kCodes.end(), error.code) != kCodes.end();
}

std::set<std::string> devices_of(const plan::Plan& plan, const cluster::Cluster& cluster) {
  std::set<std::string> devices;
  for (const plan::Member& member : plan::members(plan))
    devices.insert(cluster.device(member.device).name);
  return devices;
}

/// That of a checkpoint, or, where there is none (""), of a new training.
run::Recovery from_checkpoint(const std::string& path, int stint) {
  run::Recovery recovery;
  recovery.stint = stint;
  recovery.from = "new";
  if (path.empty()) return recovery;
  const auto found = run::open_checkpoint(path, run::TensorFiles::Extent::kSome);
  if (!found) return recovery;
  recovery.from = recovery.point.saved_path = path;
  recovery.point.step = recovery.point.saved_step = recovery.point.evaluated_step =
      found->state.step;
  recovery.point.samples = found->state.samples;
  recovery.point.best = found->state.best;
  return recovery;
}

}  // namespace

bool Adapting::on_loss(int process, const Error& error) {
  if (!members_) return false;
  job::DeviceState& device = devices_[process];
  const bool lived = device.lives(), was_joining = device.life == job::Life::kJoining;
  if (lived && !is_of_a_device(error)) return false;
  if (!members_->lose(process, clock_.steady())) return false;
  if (was_joining) {
    device.why = error;
    listener_.note(fmt::format("{} did not come: {}", device.name, error.message));
  }
  if (!lived) return true;
  coming_.lost.push_back(device.name);
  listener_.note(fmt::format("{} is lost: {}", device.name, error.message));
  return true;
}

/// Devices that live and stay.
std::vector<DeviceId> Adapting::present() const {
  std::vector<DeviceId> devices;
  for (const job::DeviceState& each : devices_.all())
    if (const auto id = cluster::find_device(inputs_.cluster, each.name); each.stays() && id)
      devices.push_back(*id);
  return devices;
}

bool Adapting::may_begin(int candidate) const {
  if (!members_ || devices_.living().empty()) return true;  // it has not begun
  const std::vector<DeviceId> devices = present();
  const bool may_survive =
      choices_.survive > 0 && devices.size() > static_cast<std::size_t>(choices_.survive);
  const Planned& planned = candidates_[static_cast<std::size_t>(candidate)].planned;
  if (may_survive && !outlives_losses(inputs_, planned, choices_.survive).value_or(false))
    return false;
  for (const plan::Member& member :
       plan::members(candidates_[static_cast<std::size_t>(candidate)].planned.plan))
    if (std::find(devices.begin(), devices.end(), member.device) == devices.end()) return false;
  return true;
}

Result<int> Adapting::plan_for(const std::vector<DeviceId>& devices) {
  if (devices.empty())
    return runtime_error("run.nobody-left", "no device of the training is there any more");
  const Candidate& now = candidates_[static_cast<std::size_t>(begun_.rbegin()->second)];
  return keep_candidate(
      ahead_ ? ahead_->find(devices)
             : choices_.replan(devices, {now.planned.plan.global_batch, now.lr_factor}));
}

/// On a plan, where no policy decides.
policy::Decision Adapting::decide(int plan, std::string why) const {
  return {.policy = kMembership,
          .seen_step = done_,
          .at = Seconds(spent_),
          .choice = {policy::UsePlan{plan}, candidates_[static_cast<std::size_t>(plan)].priced,
                     std::move(why)}};
}

/// What the policy wants now that devices were lost.
std::optional<int> Adapting::plan_of_policy() {
  if (choices_.policy == nullptr) return std::nullopt;
  std::optional<int> wanted;
  for (const std::string& device : coming_.lost)
    for (const policy::Choice& choice :
         choices_.policy->observe(policy::LossSeen{device, Seconds(spent_)}))
      if (auto found = find_candidate(choice.action)) wanted = *found;
  return wanted && may_begin(*wanted) ? wanted : std::nullopt;
}

/// From the last checkpoint, as what is left is not all; steps since are lost, of so many that were
/// done.
run::Recovery Adapting::fall_back(const Error& why, std::int64_t done) {
  if (saved_.saved_path.empty() && choices_.bring_checkpoint) {
    auto brought = choices_.bring_checkpoint();
    if (brought) saved_.saved_path = *brought;
    if (!brought) listener_.note("warning: " + brought.error().message);
  }
  run::Recovery recovery = from_checkpoint(saved_.saved_path, begun_.rbegin()->first);
  coming_.lost_steps += std::max<std::int64_t>(0, done - recovery.point.step);
  done_ = recovery.point.step;
  listener_.note(fmt::format("{}; training goes on {}", why.message,
                             recovery.from == "new" ? "from the beginning: there is no checkpoint"
                                                    : "from " + recovery.from));
  return recovery;
}

namespace {

/// Too few hosts say that this one leads them.
Error cut_off() {
  return {ErrorKind::kInfeasible, "elastic.minority",
          "not more than half of the job's hosts answer: the others may train on without these"};
}

/// A training that another host led does not begin anew where that had a checkpoint of it.
Result<void> check_way_back(const Adaptation& choices, const run::Recovery& recovery) {
  if (!choices.succeeds || recovery.from != "new" || choices.succeeds->saved_step < 0) return {};
  return runtime_error(
      "elastic.checkpoint",
      fmt::format(
          "what is left of the model is not all of it, and no host that is left has the "
          "checkpoint of step {}: run the same command on the host that led when it is back",
          choices.succeeds->saved_step));
}

}  // namespace

/// They were another lead's. All that it began may run, or nothing of it yet.
void Adapting::take_over() {
  const Succeeded& succeeds = *choices_.succeeds;
  begun_.clear();
  for (const Succeeded::Plan& each : succeeds.plans) {
    Candidate candidate;
    candidate.label = describe_plan(each.plan, inputs_.cluster);
    candidate.planned.plan = each.plan;
    candidate.lr_factor = each.lr_factor;
    numbered_[each.number] = *keep_candidate(std::move(candidate));
    number_ = std::max(number_, each.number);
  }
  begun_.insert(*numbered_.begin());
  current_ = begun_.begin()->second;
  done_ = succeeds.done;
  if (choices_.policy == nullptr || succeeds.policy.is_null()) return;
  if (const auto known = choices_.policy->restore(succeeds.policy, "the lead's policy"); !known)
    listener_.note("what was decided before is not gone on with: " + known.error().message);
}

/// What another lead needs to know: plans by the numbers of the changes that brought them, of which
/// any may run when it asks, and who had a process.
Json Adapting::will() const {
  Json what = choices_.heritage;
  what["saved_step"] =
      std::max(saved_.saved_step, choices_.succeeds ? choices_.succeeds->saved_step : -1);
  what["plans"] = Json::array();
  std::map<int, int> numbers = numbered_;
  numbers.insert(begun_.begin(), begun_.end());
  numbers.erase(numbers.begin(), numbers.lower_bound(begun_.rbegin()->first));
  for (const auto& [number, candidate] : numbers) {
    const Candidate& each = candidates_[static_cast<std::size_t>(candidate)];
    what["plans"].push_back({{"number", number},
                             {"plan", plan::print_plan(each.planned.plan, inputs_.cluster)},
                             {"lr_factor", each.lr_factor}});
  }
  tell_cluster(inputs_.cluster, what);
  what["newcomers"] = choices_.newcomers;
  what["policy"] = choices_.policy ? choices_.policy->state() : Json(nullptr);
  for (const char* key : {"devices", "living"}) what[key] = Json::array();
  for (const run::WorkerDevice& device : job_.devices) {
    const Json host = device.host.empty() ? what["host"] : Json(device.host);
    what["devices"].push_back({{"name", device.name}, {"host", host}});
  }
  for (const job::DeviceState& device : devices_.all())
    if (device.has_process()) what["living"].push_back(device.name);
  for (const auto& [key, make] : also_left_) what[key] = make();
  return what;
}

void Adapting::leave_also(const std::string& key, std::function<Json()> what) {
  if (what)
    also_left_[key] = std::move(what);
  else
    also_left_.erase(key);
  coordinator_.renew();
}

/// All stand still: they go on by the next plan, once enough hosts have said that this process
/// leads them; or end, where there is no way on.
std::optional<job::Order> Adapting::go_on_after_halt(const std::vector<run::Standing>& standings) {
  const Seconds now = clock_.steady();
  const std::optional<bool> may_lead = coordinator_.may_lead(now);
  if (coordinator_.asks()) return job::Leave{will()};
  if (!may_lead) return std::nullopt;
  coordinator_.forget();
  members_->go_on(now);
  auto change = recover(standings, *may_lead);
  if (change) {
    for (const int process : change->processes) devices_[process].was_told = true;
    return std::move(*change);
  }
  fault_ = change.error();
  for (const int process : devices_.living()) members_->kill(process);
  return members_->next(now);
}

/// All stand still: the plan by which they go on, and from where.
Result<run::Change> Adapting::recover(const std::vector<run::Standing>& standings, bool may_lead) {
  auto found = run::find_recovery(standings);
  run::Recovery recovery = found ? std::move(*found) : fall_back(found.error(), done_);
  MOTLEY_RETURN_IF_ERROR(check_way_back(choices_, recovery));
  if (recovery.from.empty()) {  // of the latest checkpoint what has come here counts
    recovery.point.saved_path = saved_.saved_path;
    recovery.point.saved_step = saved_.saved_step;
    recovery.point.saved_host.clear();
  }
  // The change that they were in may have begun without a word of it.
  if (const auto numbered = numbered_.find(recovery.stint); numbered != numbered_.end())
    begun_[recovery.stint] = numbered->second;
  asked_.clear();
  ready_.clear();
  begun_.erase(begun_.upper_bound(recovery.stint), begun_.end());
  const int from = begun_.rbegin()->second;
  const bool was_undone =
      std::any_of(standings.begin(), standings.end(), [&](const run::Standing& each) {
        return each.is_open && each.stint == recovery.stint &&
               each.point.step == recovery.point.step;
      });
  coming_.lost_steps += was_undone ? 1 : 0;
  if (!may_lead) return give_up(std::move(recovery), from, cut_off());
  const std::optional<int> wanted = plan_of_policy();
  const bool may_stay = coming_.lost.empty() && may_begin(from);
  const Result<int> to = wanted     ? Result<int>(*wanted)
                         : may_stay ? Result<int>(from)
                                    : plan_for(present());
  if (!to) return give_up(std::move(recovery), from, to.error());
  auto change = recover_from(recovery, from, *to);
  const bool is_small = !change && change.error().kind == ErrorKind::kInfeasible;
  return is_small ? give_up(std::move(recovery), from, change.error()) : change;
}

/// From what processes have, or, where that is not all, from the last checkpoint.
Result<run::Change> Adapting::recover_from(run::Recovery recovery, int from, int to) {
  std::set<std::string> empty;  // have come since, and have nothing
  for (const job::DeviceState& each : devices_.all())
    if (each.generation >= recovery.stint) empty.insert(each.name);
  Result<run::Change> change;
  if (recovery.from.empty()) {
    change = make_change(from, to, empty);
    if (!change && change.error().code == "synth.move-lost") {
      const bool stops = recovery.stops;
      recovery = fall_back(change.error(), std::max(recovery.point.step, done_));
      recovery.stops = stops;
      MOTLEY_RETURN_IF_ERROR(check_way_back(choices_, recovery));
    }
  }
  if (!recovery.from.empty()) {
    change = begin_change(to);
  }
  MOTLEY_RETURN_IF_ERROR(change);
  change->number = ++number_;
  change->after = recovery.stint;
  policy::Decision decision = decide(
      to, coming_.lost.empty() ? "devices did not get on" : "without " + join(coming_.lost, ", "));
  decision.seen_step = decision.begins = recovery.point.step;
  change->recovery = std::move(recovery);
  numbered_[number_] = to;
  asked_[number_] = {to, std::move(decision)};
  return change;
}

/// Those that are left are too few or too small: what they have is saved, and training stops.
Result<run::Change> Adapting::give_up(run::Recovery recovery, int from, const Error& why) {
  const std::vector<DeviceId> devices = present();
  if (devices.empty()) return tl::make_unexpected(why);
  listener_.note("stopping, as those that are left cannot go on: " + why.message);
  Candidate alone;  // that saves; it does no step
  const plan::Plan& before = candidates_[static_cast<std::size_t>(from)].planned.plan;
  alone.planned.plan = plan::split_instead(before, {devices.front()}, {before.global_batch});
  alone.label = describe_plan(alone.planned.plan, inputs_.cluster);
  MOTLEY_ASSIGN(alone.planned, lower_plan(inputs_, alone.planned.plan));
  candidates_.push_back(std::move(alone));
  recovery.stops = true;
  return recover_from(std::move(recovery), from, static_cast<int>(candidates_.size()) - 1);
}

/// Those whom the other lead had with it are lost.
void Adapting::lead_on() {
  const Succeeded& succeeds = *choices_.succeeds;
  const Seconds now = clock_.steady();
  members_->take_over(succeeds.numbers, now - succeeds.alone, now);
  for (const std::string& device : succeeds.living)
    if (!devices_.lives(device)) coming_.lost.push_back(device);
  listener_.note(fmt::format("this host leads on: {} lost", join(coming_.lost, ", ")));
}

void Adapting::note_membership(const run::WorkerEvent& event) {
  if (event.rank < 0 || event.rank >= devices_.size()) return;  // of the launcher
  const Seconds now = clock_.steady();
  job::DeviceState& device = devices_[event.rank];
  const bool was_there = device.lives();
  members_->on_event(event, now);
  if (event.event == "refused")
    for (const auto& [name, process] : arrived())
      devices_[process].why = {ErrorKind::kRuntime, "run.change", event.fields.value("why", "")};
  if (event.event == "step" && !first_step_at_) first_step_at_ = now;
  if (event.event == "checkpoint") coordinator_.renew();
  if (event.event == "ready" && !event.fields.value("resumed_from", "").empty()) {
    std::error_code code;  // of another host it is a copy
    saved_.saved_path = std::filesystem::canonical(directory_.latest_checkpoint(), code).string();
    saved_.saved_step = event.fields.value("first_step", std::int64_t{-1});
    coordinator_.renew();
  }
  // Who came too late for any plan: nobody tells it that the training is over.
  if (members_->is_over())
    for (const int process : devices_.living())
      if (devices_[process].has_rejoined && !devices_[process].was_told) members_->dismiss(process);
  if (members_->is_over()) return;
  if (event.event != "ready" || was_there || !device.lives() || !device.has_rejoined) return;
  device.generation = begun_.rbegin()->first;
  device.awaits_plan = device.awaits_generation = true;
}

job::DeviceTable::Named Adapting::arrived() const {
  return devices_.where([](const job::DeviceState& each) { return each.awaits_plan; });
}

/// A plan has begun, after step `step`.
void Adapting::settle_membership(std::int64_t step, Seconds pause) {
  if (!members_) return;
  const std::set<std::string> used = devices_of(current().planned.plan, inputs_.cluster);
  for (const auto& [device, process] : devices_.where([&](const job::DeviceState& each) {
         return each.life == job::Life::kLeaving && !used.contains(each.name);
       })) {
    coming_.left.push_back(device);
    // To a policy it is gone, however it went.
    if (choices_.policy != nullptr)
      (void)choices_.policy->observe(policy::LossSeen{device, Seconds(spent_)});
    members_->dismiss(process);
  }
  for (const auto& [name, process] :
       devices_.where([&](const job::DeviceState& each) { return used.contains(each.name); })) {
    job::DeviceState& device = devices_[process];
    if (std::exchange(device.awaits_plan, false)) coming_.joined.push_back(name);
    device.why.reset();
    know_newcomer(device);
  }
  const bool is_empty = coming_.lost.empty() && coming_.left.empty() && coming_.joined.empty() &&
                        coming_.lost_steps == 0;
  if (is_empty) return;
  coming_.step = step;
  const bool stood = !coming_.lost.empty() || coming_.lost_steps > 0;
  coming_.pause = stood ? clock_.steady() - members_->since() : pause;
  std::vector<std::string> words;
  const auto say = [&](const std::vector<std::string>& devices, const char* what) {
    if (!devices.empty()) words.push_back(join(devices, ", ") + " " + what);
  };
  say(coming_.lost, "lost");
  say(coming_.left, "left");
  say(coming_.joined, "joined");
  if (words.empty()) words.emplace_back("some did not get on, and all are there");
  listener_.note(fmt::format(
      "step {}: {}; went on after {}{}", step, join(words, ", "), format_seconds(coming_.pause),
      coming_.lost_steps == 0   ? ""
      : coming_.lost_steps == 1 ? ", a step was done again"
                                : fmt::format(", {} steps are done again", coming_.lost_steps)));
  membership_.push_back(std::exchange(coming_, {}));
}

namespace {

/// Has a device something of what is kept that no other has?
bool is_sole_holder(const program::Program& program, std::size_t rank) {
  if (program.devices.size() == 1) return true;
  const auto is_kept = [](const program::Buffer& buffer) {
    return buffer.part && buffer.kind != program::BufferKind::kConstant &&
           buffer.kind != program::BufferKind::kMirror;
  };
  for (const program::Buffer& buffer : program.devices[rank].buffers) {
    if (!is_kept(buffer)) continue;
    bool has_copy = false;
    for (std::size_t other = 0; other < program.devices.size(); ++other)
      for (const program::Buffer& each : program.devices[other].buffers)
        has_copy = has_copy || (other != rank && each.tensor() == buffer.name &&
                                (!each.part || (each.part->begin == buffer.part->begin &&
                                                each.shape == buffer.shape)));
    if (!has_copy) return true;
  }
  return false;
}

}  // namespace

/// Said beforehand: whose loss the plan does not outlive, and what mirrors cost. Plans for the loss
/// of each device are made beside training.
void Adapting::look_ahead() {
  if (!members_ || !current().planned.program) return;
  const program::Program& program = *current().planned.program;
  std::vector<std::string> sole;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
    if (is_sole_holder(program, rank)) sole.push_back(program.devices[rank].device);
  const std::string text =
      sole.empty() ? describe_mirrors(program)
                   : fmt::format(
                         "if {} is lost, training goes on from the last checkpoint: "
                         "nobody else has {} of the model (--checkpoint-every)",
                         join(sole, " or "), sole.size() > 1 ? "their parts" : "its part");
  if (text != said_ && !text.empty()) listener_.note(text);
  said_ = text;
  if (!choices_.plans_ahead) return;
  if (!ahead_)
    ahead_.emplace([this, batch = BatchNow{current().planned.plan.global_batch, 1}](
                       const std::vector<DeviceId>& devices) -> Result<Candidate> {
      MOTLEY_ASSIGN(Candidate made, choices_.replan(devices, batch));
      MOTLEY_RETURN_IF_ERROR(make_programs(made));
      return made;
    });
  ahead_->prepare(present());
}

/// It takes part, so that it is one of the cluster's devices from now on, also of a run that goes
/// on with this one.
void Adapting::know_newcomer(job::DeviceState& device) {
  const std::optional<std::string> text = std::exchange(device.text, std::nullopt);
  if (!text) return;
  choices_.newcomers.push_back(*text);
  const auto written =
      write_file_atomic(directory_.newcomers(), print_newcomers(choices_.newcomers));
  if (!written) listener_.note("warning: " + written.error().message);
}

/// Makes a plan with devices that have come. Strangers with which none is possible are sent back:
/// they would be in the way of all further plans.
void Adapting::take_arrivals() {
  const job::DeviceTable::Named arrived = this->arrived();
  if (arrived.empty() || !asked_.empty()) return;
  std::vector<std::string> names;
  for (const auto& [device, process] : arrived) names.push_back(device);
  std::vector<int> strangers;
  for (const auto& [device, process] : arrived) {
    const auto id = cluster::find_device(inputs_.cluster, device);
    if (!devices_[process].text || !id) continue;
    ahead_.reset();  // nobody else asks for prices
    listener_.note(device + ": " + choices_.price(*id));
    devices_[process].is_priced = true;
    strangers.push_back(process);
  }
  for (const std::string& device : names)
    observe(policy::ArrivalSeen{device, Seconds(spent_)}, done_);
  if (!asked_.empty()) return;  // the policy knows how
  const auto plan = plan_for(present());
  const bool is_idle = plan && *plan == current_;
  const auto asked = !plan     ? tl::make_unexpected(plan.error())
                     : is_idle ? Result<void>()
                               : ask(*plan, decide(*plan, "with " + join(names, ", ")));
  if (asked && !is_idle) return;
  const Error why = asked
                        ? Error{ErrorKind::kRuntime, "elastic.idle", "the plan is quicker without"}
                        : asked.error();
  if (is_idle || !plan)  // else it was said
    listener_.note(join(names, ", ") + " is idle: " + why.message);
  for (const auto& [device, process] : arrived) {
    devices_[process].awaits_plan = false;
    devices_[process].why = why;
    if (is_idle) know_newcomer(devices_[process]);
  }
  for (const int process : strangers) {
    if (is_idle) continue;
    devices_[process].is_priced = false;
    members_->dismiss(process);
    listener_.note(devices_[process].name + " is sent back, as no plan is possible with it");
  }
  if (!strangers.empty()) look_ahead();
}

Result<void> Adapting::release(const std::string& device) {
  const auto process = members_ ? devices_.find(device) : std::nullopt;
  if (!process || !devices_[*process].lives())
    return usage_error("elastic.absent", device + ": no such device trains here now");
  if (devices_[*process].life == job::Life::kLeaving) return {};
  devices_.leave(*process);
  const auto plan = plan_for(present());
  if (!plan) {
    devices_.stay(*process);
    return tl::make_unexpected(plan.error());
  }
  if (*plan == current_ && asked_.empty()) {
    settle_membership(done_, Seconds(0));
    return {};
  }
  const auto asked = ask(*plan, decide(*plan, device + " leaves"));
  if (!asked) devices_.stay(*process);
  return asked;
}

Result<void> Adapting::take_in(const std::string& device) {
  const auto process = members_ ? devices_.find(device) : std::nullopt;
  if (!process)
    return usage_error("elastic.unknown", device + ": the run's cluster has no such device");
  if (members_->is_over()) return usage_error("elastic.over", "the training is over");
  if (!members_->start(*process))
    return usage_error("elastic.present", device + ": it takes part already");
  devices_[*process].why.reset();
  return {};
}

Result<void> Adapting::welcome(const cluster::Cluster& newcomer) {
  const std::string& device = device_name(newcomer);
  if (!members_ || !choices_.grow)
    return usage_error("elastic.unknown", device + ": the run's cluster has no such device");
  if (members_->is_over()) return usage_error("elastic.over", "the training is over");
  const auto known = devices_.find(device);
  if (known && !devices_[*known].text)
    return usage_error("elastic.taken",
                       device + ": the run has a device of that name; give another by --name");
  if (known && devices_[*known].has_process())
    return usage_error("elastic.present", device + ": it is coming already");
  ahead_.reset();  // nobody else looks at the cluster
  MOTLEY_ASSIGN(Grown grown, choices_.grow(newcomer));
  const std::string hash = cluster::cluster_hash(inputs_.cluster);
  for (Candidate& each : candidates_) each.planned.plan.cluster_hash = hash;
  const int process = members_->add(grown.worker);
  const auto at = static_cast<std::size_t>(process);
  job_.devices.resize(std::max(job_.devices.size(), at + 1));
  job_.devices[at] = std::move(grown.worker);
  devices_[process].text = cluster::print_cluster(newcomer);
  devices_[process].is_priced = false;
  devices_[process].why.reset();
  const std::string& host = job_.devices[at].host;
  listener_.note(fmt::format("{} comes, of {}; {}", device,
                             host.empty() ? "this machine" : "host " + host, grown.joined));
  members_->start(process);
  look_ahead();
  return {};
}

std::vector<job::DeviceStatus> Adapting::device_states() const {
  return devices_.statuses(devices_of(current().planned.plan, inputs_.cluster));
}

/// Takes emulated devices away and brings them back, at their times.
void Adapting::follow_absences() {
  if (!first_step_at_) return;
  const trace::Nanoseconds now = simulate::whole_nanoseconds(clock_.steady() - *first_step_at_);
  while (absences_.next() != nullptr && absences_.next()->at <= now) {
    const Presence::Event event = absences_.take();
    const auto process = devices_.find(event.device);
    if (!process) continue;
    if (event.what == Presence::What::kArrival)
      devices_[*process].returns = true;
    else
      members_->kill(*process);
  }
  // One that was killed may not have ended yet.
  for (const auto& [device, process] :
       devices_.where([](const job::DeviceState& each) { return each.returns; }))
    devices_[process].returns = !members_->start(process);
}

}  // namespace motley::control
