#include "motley/control/adaptation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/text.h"
#include "motley/synth/gradient_squares.h"

namespace motley::control {
namespace {

constexpr int kPredictedSteps = 3;

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
  if (members.size() == 1) return cluster.device(members[0].device).name + " alone" + in_passes;
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
    shares.push_back({cluster.device(member.device).name, member.samples});
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

}  // namespace motley::control
