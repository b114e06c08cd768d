#include "motley/control/training/candidates.h"

#include <algorithm>
#include <map>
#include <utility>

#include "motley/base/json.h"
#include "motley/control/planning/mirroring.h"
#include "motley/synth/state/move.h"

namespace motley::control {

std::set<std::string> Candidates::devices(int plan) const {
  std::set<std::string> devices;
  for (const plan::Member& member : plan::members((*this)[plan].planned.plan))
    devices.insert(inputs_.cluster.device(member.device).name);
  return devices;
}

bool Candidates::outlives_losses(int plan, std::size_t devices) const {
  if (choices_.survive <= 0 || devices <= static_cast<std::size_t>(choices_.survive)) return true;
  return control::outlives_losses(inputs_, (*this)[plan].planned, choices_.survive).value_or(false);
}

/// Returns the plan of an action, and makes it if necessary.
Result<int> Candidates::find(const policy::Action& action) {
  if (const auto* use = std::get_if<policy::UsePlan>(&action)) return use->plan;
  Result<Candidate> made =
      runtime_error("policy.action", "this training cannot do what the policy asks for: " +
                                         policy::action_to_json(action).dump());
  if (const auto* batch = std::get_if<policy::UseBatch>(&action); batch && choices_.batch)
    made = choices_.batch(*batch);
  if (const auto* split = std::get_if<policy::UseSplit>(&action); split && choices_.split)
    made = choices_.split(split->shares);
  MOTLEY_RETURN_IF_ERROR(made);
  return add(std::move(*made));
}

std::vector<DeviceId> Candidates::ids_of(const std::vector<std::string>& names) const {
  std::vector<DeviceId> ids;
  for (const std::string& name : names)
    if (const auto id = cluster::find_device(inputs_.cluster, name)) ids.push_back(*id);
  return ids;
}

Result<int> Candidates::make(const std::vector<std::string>& devices, int now) {
  const Candidate& runs = (*this)[now];
  const std::vector<DeviceId> ids = ids_of(devices);
  MOTLEY_ASSIGN(Candidate made,
                ahead_ ? ahead_->find(ids)
                       : choices_.replan(ids, {runs.planned.plan.global_batch, runs.lr_factor}));
  return add(std::move(made));
}

Result<int> Candidates::make_saving(const std::string& device, int now) {
  const plan::Plan& before = (*this)[now].planned.plan;
  Candidate alone;
  alone.planned.plan = plan::split_instead(before, ids_of({device}), {before.global_batch});
  alone.label = describe_plan(alone.planned.plan, inputs_.cluster);
  MOTLEY_ASSIGN(alone.planned, lower_plan(inputs_, alone.planned.plan));
  choices_.candidates.push_back(std::move(alone));
  return static_cast<int>(choices_.candidates.size()) - 1;
}

int Candidates::add(Candidate made) {
  std::deque<Candidate>& all = choices_.candidates;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].planned.plan != made.planned.plan || all[i].lr_factor != made.lr_factor) continue;
    if (!all[i].planned.program) {
      all[i].planned = std::move(made.planned);
      all[i].evaluations = std::move(made.evaluations);
    }
    return static_cast<int>(i);
  }
  all.push_back(std::move(made));
  return static_cast<int>(all.size()) - 1;
}

Result<void> Candidates::make_programs(Candidate& candidate) const {
  if (candidate.planned.program) return {};
  Candidate made = candidate;
  MOTLEY_RETURN_IF_ERROR(lower_candidate(inputs_, choices_, made));
  MOTLEY_RETURN_IF_ERROR(check_memory(inputs_, made.planned));
  if (choices_.complete) MOTLEY_RETURN_IF_ERROR(choices_.complete(made));
  if (!made.predicted) predict_candidate(inputs_, choices_, made);
  candidate = std::move(made);
  return {};
}

void Candidates::make_next_ahead() {
  // An error is reported when the plan is requested.
  if (made_ahead_ < found_) (void)make_programs(choices_.candidates[made_ahead_++]);
}

Result<run::Change> Candidates::make_change(const job::Transition& transition) {
  Candidate& to = (*this)[transition.to];
  if (transition.from) MOTLEY_RETURN_IF_ERROR(make_programs((*this)[*transition.from]));
  MOTLEY_RETURN_IF_ERROR(make_programs(to));
  run::Change change;
  change.program = *to.planned.program;
  change.evaluations = to.evaluations;
  change.lr_factor = to.lr_factor;
  change.devices = run::devices_of(change.program, job_.devices);
  if (!transition.from) return change;
  const program::Program& from = *(*this)[*transition.from].planned.program;
  const program::Program& into = *to.planned.program;
  synth::MoveOptions options;
  std::map<std::string, std::string> hosts;
  for (const run::WorkerDevice& device : job_.devices) hosts[device.name] = device.host;
  options.host_of = [&](const std::string& name) { return hosts[name]; };
  for (const program::Program* each : {&into, &from})
    for (const program::DeviceProgram& device : each->devices)
      if ((!transition.there || transition.there->contains(device.device)) &&
          std::find(options.devices.begin(), options.devices.end(), device.device) ==
              options.devices.end())
        options.devices.push_back(device.device);
  for (const std::string& name : options.devices)
    if (transition.empty.contains(name)) options.lost.insert(name);
  MOTLEY_ASSIGN(synth::Move move, synth::lower_move(from, into, options));
  change.move = std::move(move.program);
  change.moving = run::devices_of(change.move, job_.devices);
  return change;
}

std::string Candidates::price(const std::string& device) {
  ahead_.reset();  // nothing else may read prices now
  return choices_.price(ids_of({device}).front());
}

void Candidates::prepare_for_losses(const std::vector<std::string>& devices, int now) {
  if (!choices_.plans_ahead) return;
  if (!ahead_)
    ahead_.emplace([this, batch = BatchNow{(*this)[now].planned.plan.global_batch, 1}](
                       const std::vector<DeviceId>& left) -> Result<Candidate> {
      MOTLEY_ASSIGN(Candidate made, choices_.replan(left, batch));
      MOTLEY_RETURN_IF_ERROR(make_programs(made));
      return made;
    });
  ahead_->prepare(ids_of(devices));
}

Result<Grown> Candidates::grow(const cluster::Cluster& joiner) {
  ahead_.reset();  // nothing else may read the cluster now
  MOTLEY_ASSIGN(Grown grown, choices_.grow(joiner));
  const std::string hash = cluster::cluster_hash(inputs_.cluster);
  for (Candidate& each : choices_.candidates) each.planned.plan.cluster_hash = hash;
  return grown;
}

}  // namespace motley::control
