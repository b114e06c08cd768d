#include "motley/control/training/adaptation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/text.h"
#include "motley/synth/noise/gradient_squares.h"

namespace motley::control {
namespace {

constexpr int kPredictedSteps = 3;

}  // namespace

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
  if (taken_over) return taken_over->devices;
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
