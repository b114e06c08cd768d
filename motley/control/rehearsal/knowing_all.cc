// Rehearses a training that knows beforehand what happens.

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "motley/control/planning/slowed_split.h"
#include "motley/control/rehearsal/rehearsal.h"
#include "motley/control/rehearsal/rehearsed_programs.h"
#include "motley/control/training/availability_trace.h"

namespace motley::control {
namespace {

using simulate::StepByStep;
using trace::Nanoseconds;

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
      MOTLEY_ASSIGN(candidates_.emplace_back(), lay_out(candidate.planned));
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
  using Programs = std::vector<std::shared_ptr<RehearsedProgram>>;

  /// Null: the plan is not possible, or a time is unknown.
  Result<std::shared_ptr<RehearsedProgram>> lay_out(Planned planned) const {
    if (!planned.program) {
      MOTLEY_ASSIGN(planned, lower_plan(chosen_.inputs, planned.plan));
    }
    return lay_out_if_possible(chosen_.inputs, planned, *cost_, choices_.conditions);
  }

  /// End of the fastest step from now on that no loss interrupts; none: no plan can do it.
  Result<std::optional<Nanoseconds>> find_end(std::size_t step) {
    std::set<std::string> without = availability_.gone();
    std::optional<Nanoseconds> best;
    for (std::size_t before = SIZE_MAX; before != without.size();) {
      before = without.size();
      Programs programs = candidates_;
      MOTLEY_ASSIGN(programs.emplace_back(), best_without(without));
      for (const auto& program : programs) {
        if (program == nullptr || program->uses_any(availability_.gone())) continue;
        MOTLEY_ASSIGN(const StepByStep::Times times,
                      program->steps.run({.step = static_cast<std::int64_t>(step)}, now_));
        const AvailabilityTrace::Event* loss = availability_.find_loss(program->devices);
        if (loss != nullptr && loss->at < times.end)
          without.insert(loss->device);
        else
          best = std::min(best.value_or(times.end), times.end);
      }
    }
    return best;
  }

  /// Returns the best plan without some devices, a split at the current slowness; null: none.
  Result<std::shared_ptr<RehearsedProgram>> best_without(const std::set<std::string>& without) {
    if (!adaptation_.split && (!adaptation_.replan || without.empty())) return nullptr;
    const Slowness slowness = slowness_at(choices_.conditions.slow_downs, now_);
    const auto [known, is_new] = plans_.try_emplace({without, slowness});
    if (!is_new) return known->second;
    Candidate candidate;
    if (adaptation_.split) {
      MOTLEY_ASSIGN(const auto shares, find_split_if_any(chosen_, without, slowness, 0));
      if (!shares) return nullptr;
      MOTLEY_ASSIGN(candidate, adaptation_.split(*shares));
    } else {
      std::vector<DeviceId> there;
      for (const DeviceId device : chosen_.inputs.devices)
        if (!without.contains(chosen_.inputs.cluster.device(device).name)) there.push_back(device);
      if (there.empty()) return nullptr;
      auto made = adaptation_.replan(there, {chosen_.planned.plan.global_batch, 1});
      if (!made) return nullptr;  // nothing fits them
      candidate = *std::move(made);
    }
    MOTLEY_ASSIGN(known->second, lay_out(candidate.planned));
    return known->second;
  }

  const ChosenPlan& chosen_;
  const Adaptation& adaptation_;
  const RehearsalChoices& choices_;
  const std::unique_ptr<const cost::CostModel> cost_;
  AvailabilityTrace availability_;
  Programs candidates_;
  std::map<std::pair<std::set<std::string>, Slowness>, std::shared_ptr<RehearsedProgram>> plans_;
  Nanoseconds now_ = 0;
};

}  // namespace

Result<Rehearsed> rehearse_knowing_all(const ChosenPlan& chosen, const Adaptation& adaptation,
                                       const RehearsalChoices& choices) {
  MOTLEY_RETURN_IF_ERROR(check_rehearsal(chosen, choices.conditions));
  return KnowingAll(chosen, adaptation, choices).run();
}

}  // namespace motley::control
