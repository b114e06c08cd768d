#include "motley/control/training/adapting.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/control/planning/mirroring.h"
#include "motley/control/training/joiner.h"
#include "motley/control/training/takeover.h"
#include "motley/program/program_text.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

constexpr const char* kStart = "start";  // names a call's first decision, which no policy made

/// Returns the action of a call's first decision; where batches change it names the batch.
policy::Action first_action(const Adaptation& choices, int current,
                            const cluster::Cluster& cluster) {
  if (!choices.batches) return policy::UsePlan{current};
  const Candidate& runs = choices.candidates[static_cast<std::size_t>(current)];
  return policy::UseBatch{shares_of(runs.planned.plan, cluster), runs.lr_factor};
}

/// Adds a rank's parts of a step. The shortest time of an exchange counts: it waited least.
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

/// Renames traces from processes to ranks of the plan, which readers expect.
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

}  // namespace

Adapting::Adapting(Adaptation& adaptation, const Inputs& inputs, const RunDirectory& directory,
                   const run::Job& job, const Clock& clock, Listener& listener)
    : choices_(adaptation),
      inputs_(inputs),
      directory_(directory),
      job_(job),
      clock_(clock),
      listener_(listener),
      candidates_(adaptation, inputs, job_),
      controller_(controller_options(), candidates_, *this),
      log_(directory.decisions()),
      logged_(current_index()),
      absences_(adaptation.absences) {
  if (!choices_.taken_over || !choices_.policy || choices_.taken_over->policy.is_null()) return;
  if (const auto known =
          choices_.policy->restore(choices_.taken_over->policy, "the coordinator's policy");
      !known)
    note("what was decided before is not gone on with: " + known.error().message);
}

job::ControllerOptions Adapting::controller_options() {
  job::ControllerOptions options;
  for (const run::WorkerDevice& device : job_.devices) options.devices.push_back(device.name);
  options.absent = choices_.absent;
  options.first_plan = choices_.first;
  options.is_elastic = choices_.replan != nullptr;
  options.has_standbys = !choices_.standby_state.is_null();
  options.timeout = job_.timeout;
  options.counts_every = choices_.counts_every;
  options.policy = choices_.policy.get();
  if (options.is_elastic && choices_.taken_over) options.takeover = take_over();
  return options;
}

/// Takes over another coordinator's processes. Any of its possible plans may be running.
job::Takeover Adapting::take_over() {
  const TakenOver& taken_over = *choices_.taken_over;
  job::Takeover taken{.living = taken_over.living,
                      .halts = taken_over.numbers,
                      .alone = taken_over.alone,
                      .done = taken_over.done,
                      .saved_step = taken_over.saved_step};
  for (const TakenOver::Plan& each : taken_over.plans) {
    Candidate candidate;
    candidate.label = describe_plan(each.plan, inputs_.cluster);
    candidate.planned.plan = each.plan;
    candidate.lr_factor = each.lr_factor;
    taken.plans[each.number] = candidates_.add(std::move(candidate));
  }
  return taken;
}

Result<void> Adapting::open() {
  std::error_code code;
  if (!job_.resume) std::filesystem::remove(directory_.joiners(), code);
  MOTLEY_RETURN_IF_ERROR(
      log_.open(job_.resume ? DecisionLog::From::kBefore : DecisionLog::From::kStart));
  for (std::size_t i = 0; i < choices_.given.size(); ++i)
    (void)controller_.ask(choices_.given_candidates[i], choices_.given[i]);
  // The present devices may differ from those when the policy's state was kept.
  if (choices_.policy && choices_.replan)
    for (const run::WorkerDevice& device : job_.devices) {
      const bool is_absent = job_.changes && job_.changes->is_absent(device.name);
      observe(is_absent ? policy::Observation(policy::LossSeen{device.name, Seconds(0)})
                        : policy::ArrivalSeen{device.name, Seconds(0)},
              0);
    }
  return {};
}

void Adapting::warn(const Result<void>& done) {
  if (!done) note("warning: " + done.error().message);
}

/// Logs a decision with the plan that it led to, and the step time of the plan before.
void Adapting::log_plan(policy::Decision decision, int plan, Begins begins) {
  if (const auto usual = log_.usual_step()) candidates_[logged_].measured = usual;
  decision.plan = plan::print_plan(candidates_[plan].planned.plan, inputs_.cluster);
  warn(log_.keep_plan(std::move(decision)));
  if (begins == Begins::kBefore) return;
  log_.begin_plan();
  const int before = std::exchange(logged_, plan);
  look_ahead();
  if (controller_.generations().is_settled() && before != plan) {
    candidates_[before].planned.program.reset();
    candidates_[before].evaluations.clear();
  }
  warn(write_plan(directory_, candidates_[plan], inputs_.cluster));
}

void Adapting::log_decision(policy::Decision decision) { warn(log_.keep(std::move(decision))); }

Wish Adapting::step(const StepReport& report) {
  const Wish wish = listener_.step(report);
  const auto plan = controller_.generations().plan_of(report.logged.generation);
  if (!plan) return wish;
  controller_.on_step(report.step, Seconds(report.logged.step_s));
  log_.on_step(report.logged.step_s);
  // The first step of a program touches memory and has cold caches.
  const bool is_first = log_.steps() == 1;
  const auto parts = seen_.extract(report.step);
  seen_.erase(seen_.begin(), seen_.lower_bound(report.step));
  if (choices_.policy == nullptr) return wish;
  policy::StepSeen seen = parts && !is_first ? std::move(parts.mapped()) : policy::StepSeen();
  seen.step = report.step;
  seen.at = controller_.spent();
  seen.took = Seconds(report.logged.step_s);
  seen.plan = *plan;
  const plan::Plan& runs = candidates_[*plan].planned.plan;
  seen.global_batch = runs.global_batch;
  for (const policy::Share& share : shares_of(runs, inputs_.cluster))
    for (policy::DeviceStep& device : seen.devices)
      if (share.device == device.device) device.samples = share.samples;
  observe(seen, report.step + 1);
  if (report.logged.noise) observe(*report.logged.noise, report.step + 1);
  return wish;
}

void Adapting::on_event(const run::WorkerEvent& event) {
  const Json& fields = event.fields;
  if (event.event == "step") {
    take_parts(event, job_.devices, seen_);
    if (!first_step_at_) first_step_at_ = now();
  }
  if (event.event == "ready" && !fields.value("resumed_from", "").empty()) {
    std::error_code code;  // on another host, it is a copy
    const auto path = std::filesystem::canonical(directory_.latest_checkpoint(), code);
    controller_.on_checkpoint(path.string(), fields.value("first_step", std::int64_t{-1}));
  }
  controller_.on_event(event, now());
  if (event.event == "ready" && fields.value("leads", event.rank == 0)) {
    const std::int64_t first = fields.value("first_step", std::int64_t{0});
    log_plan({.policy = kStart,
              .seen_step = first,
              .choice = {first_action(choices_, current_index(), inputs_.cluster), std::nullopt,
                         current().label},
              .begins = first},
             current_index(), Begins::kBefore);
    look_ahead();
  }
  if (event.event == "checkpoint" && choices_.policy != nullptr)
    warn(write_file_atomic(fields.value("path", "") + "/policy.json", policy_text()));
}

std::optional<job::Order> Adapting::next_order() {
  make_ahead();
  follow_absences();
  std::optional<job::Order> order = controller_.next(now());
  if (auto* leave = order ? std::get_if<job::Leave>(&*order) : nullptr) leave->what = will();
  return order;
}

/// Makes programs of plans to be tried while processes start and nobody waits for them. After a
/// takeover the processes wait, so it makes none.
void Adapting::make_ahead() {
  if (steps_done() == 0 && log_.steps() == 0 && !choices_.taken_over) candidates_.make_next_ahead();
}

/// Takes emulated devices away and brings them back on time.
void Adapting::follow_absences() {
  if (!first_step_at_) return;
  const trace::Nanoseconds at = simulate::whole_nanoseconds(now() - *first_step_at_);
  while (absences_.next() != nullptr && absences_.next()->at <= at) {
    const AvailabilityTrace::Event event = absences_.take();
    if (event.what == AvailabilityTrace::What::kArrival)
      controller_.bring_back(event.device);
    else
      controller_.take_away(event.device);
  }
}

/// Returns the policy's state and the plans that it names: the initial and the running ones.
std::string Adapting::policy_text() const {
  Json plans = Json::array();
  const auto add = [&](const Candidate& candidate) {
    plans.push_back(plan::print_plan(candidate.planned.plan, inputs_.cluster));
  };
  const int found = static_cast<int>(candidates_.found());
  for (int plan = 0; plan < found; ++plan) add(candidates_[plan]);
  const bool is_found = current_index() < found;
  if (!is_found) add(current());
  return Json{{"schema", kPolicySchema},
              {"policy", choices_.policy->name()},
              {"current", is_found ? current_index() : found},
              {"plans", std::move(plans)},
              {"lr_factor", current().lr_factor},
              {"counts_every", controller_.counts_every()},
              {"state", choices_.policy->state()}}
      .dump();
}

/// Returns the state for standbys: possible plans, by their changes, and devices with a process.
Json Adapting::will() const {
  Json what = choices_.standby_state;
  what["saved_step"] = controller_.saved_step();
  what["plans"] = Json::array();
  for (const auto& [number, plan] : controller_.generations().possible()) {
    const Candidate& each = candidates_[plan];
    what["plans"].push_back({{"number", number},
                             {"plan", plan::print_plan(each.planned.plan, inputs_.cluster)},
                             {"lr_factor", each.lr_factor}});
  }
  tell_cluster(inputs_.cluster, what);
  what["newcomers"] = choices_.joiners;
  what["policy"] = choices_.policy ? choices_.policy->state() : Json(nullptr);
  for (const char* key : {"devices", "living"}) what[key] = Json::array();
  for (const run::WorkerDevice& device : job_.devices) {
    const Json host = device.host.empty() ? what["host"] : Json(device.host);
    what["devices"].push_back({{"name", device.name}, {"host", host}});
  }
  for (const job::DeviceState& device : controller_.devices().all())
    if (device.has_process()) what["living"].push_back(device.name);
  for (const auto& [key, make] : also_left_) what[key] = make();
  return what;
}

void Adapting::leave_also(const std::string& key, std::function<Json()> what) {
  if (what)
    also_left_[key] = std::move(what);
  else
    also_left_.erase(key);
  controller_.renew_standbys();
}

/// Notes losses that the plan does not survive and the cost of mirrors; prepares for losses.
void Adapting::look_ahead() {
  if (!choices_.replan || !current().planned.program) return;
  const std::string text = describe_losses(*current().planned.program);
  if (text != said_ && !text.empty()) note(text);
  said_ = text;
  candidates_.prepare_for_losses(controller_.present(), current_index());
}

/// Keeps the device also for runs that continue this one.
void Adapting::keep_joiner(const std::string& text) {
  choices_.joiners.push_back(text);
  warn(write_file_atomic(directory_.joiners(), print_joiners(choices_.joiners)));
}

Result<std::string> Adapting::bring_checkpoint() {
  return choices_.bring_checkpoint ? choices_.bring_checkpoint() : Result<std::string>("");
}

run::Recovery Adapting::open_checkpoint(const std::string& path) {
  run::Recovery recovery;
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

Result<void> Adapting::welcome(const cluster::Cluster& joiner) {
  const std::string& device = device_name(joiner);
  if (!choices_.replan || !choices_.grow)
    return usage_error("elastic.unknown", device + ": the run's cluster has no such device");
  MOTLEY_RETURN_IF_ERROR(controller_.check_joiner(device));
  MOTLEY_ASSIGN(Grown grown, candidates_.grow(joiner));
  const std::string host = grown.worker.host.empty() ? "this machine" : "host " + grown.worker.host;
  const auto at =
      static_cast<std::size_t>(controller_.add(grown.worker, cluster::print_cluster(joiner)));
  job_.devices.resize(std::max(job_.devices.size(), at + 1));
  job_.devices[at] = std::move(grown.worker);
  note(fmt::format("{} comes, of {}; {}", device, host, grown.joined));
  MOTLEY_RETURN_IF_ERROR(take_in(device));
  look_ahead();
  return {};
}

std::vector<job::DeviceStatus> Adapting::device_states() const {
  return controller_.devices().statuses(candidates_.devices(current_index()));
}

std::vector<run::WorkerDevice> Adapting::current_devices() const {
  return run::devices_of(*current().planned.program, job_.devices);
}

Result<void> Adapting::end(bool has_traces) {
  if (const auto usual = log_.usual_step()) candidates_[logged_].measured = usual;
  warn(log_.end());
  return has_traces ? settle_traces(directory_, job_.devices, *current().planned.program)
                    : Result<void>();
}

}  // namespace motley::control
