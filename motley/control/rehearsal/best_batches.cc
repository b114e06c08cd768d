#include "motley/control/rehearsal/best_batches.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "motley/adapt/learning_rate.h"
#include "motley/control/planning/slowed_split.h"
#include "motley/control/rehearsal/rehearsed_programs.h"
#include "motley/control/training/availability_trace.h"
#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

using simulate::StepByStep;
using simulate::whole_nanoseconds;
using trace::Nanoseconds;

constexpr int kGrid = 64;
constexpr int kCoarse = 8;  // a power of two

class BestBatches {
 public:
  BestBatches(const ChosenPlan& chosen, const BatchSpace& space, const RehearsalChoices& choices)
      : chosen_(chosen),
        space_(space),
        choices_(choices),
        cost_(chosen.priced.costs->model(chosen.inputs.cluster)),
        availability_(choices.conditions.absences) {
    const std::int64_t unit = chosen.planned.plan.replicas.front().micro_batches;
    const double least = static_cast<double>(space.least) / static_cast<double>(unit);
    const double ratio = static_cast<double>(space.most) / static_cast<double>(space.least);
    for (int i = 0; i < kGrid; ++i)
      batches_.push_back(unit * std::llround(least * std::pow(ratio, i / (kGrid - 1.0))));
  }

  Result<Rehearsed> run(double progress) {
    Rehearsed done{.policy = "clairvoyant"};
    while (done.progress < progress) {
      while (availability_.next() != nullptr && availability_.next()->at <= now_)
        availability_.take();
      noise_ = choices_.noise ? choices_.noise->at(static_cast<double>(done.samples)) : 0;
      step_ = static_cast<std::int64_t>(done.step_s.size());
      MOTLEY_ASSIGN(const Step best, find_best());
      if (best.batch > 0) {
        const double part = std::min(1.0, (progress - done.progress) / gain(best.batch));
        done.step_s.push_back(part * to_seconds(best.end - now_).value);
        done.progress += part * gain(best.batch);
        done.samples += best.batch;
        done.batch = best.batch;
        done.total += Seconds(done.step_s.back());
        now_ = best.end;
      } else if (availability_.next() == nullptr) {
        done.stopped = "devices are gone for good and no plan is left";
        break;
      } else {
        const Seconds waited = to_seconds(availability_.next()->at - now_);
        done.lost += waited;
        done.total += waited;
        now_ = availability_.next()->at;
      }
    }
    return done;
  }

 private:
  struct Step {
    std::int64_t batch = 0;  ///< 0: no step is possible
    Nanoseconds end = 0;
    double rate = 0;  ///< progress per second
  };

  double gain(std::int64_t batch) const {
    return adapt::batch_gain(static_cast<double>(batch), static_cast<double>(space_.first), noise_);
  }

  Result<Step> find_best() {
    Step best;
    std::map<int, double> rates;
    int at = 0;
    const auto look_at = [&](int i) -> Result<void> {
      if (i < 0 || i >= kGrid || rates.contains(i)) return {};
      MOTLEY_ASSIGN(const Step step, find_step(batches_[static_cast<std::size_t>(i)]));
      rates[i] = step.rate;
      if (step.rate > best.rate) {
        best = step;
        at = i;
      }
      return {};
    };
    for (int i = 0; i < kGrid; i += kCoarse) MOTLEY_RETURN_IF_ERROR(look_at(i));
    MOTLEY_RETURN_IF_ERROR(look_at(kGrid - 1));
    for (int by = kCoarse / 2; by > 0; by /= 2) {
      const int middle = at;
      MOTLEY_RETURN_IF_ERROR(look_at(middle - by));
      MOTLEY_RETURN_IF_ERROR(look_at(middle + by));
    }
    return best;
  }

  /// Finds the step with the best split over devices that no loss interrupts.
  Result<Step> find_step(std::int64_t batch) {
    std::set<std::string> without = availability_.gone();
    for (;;) {
      MOTLEY_ASSIGN(RehearsedProgram * way, find_way(batch, without));
      if (way == nullptr) return Step();
      MOTLEY_ASSIGN(const StepByStep::Times times, way->steps.run({.step = step_}, now_));
      const AvailabilityTrace::Event* loss = availability_.find_loss(way->devices);
      if (loss == nullptr || loss->at >= times.end)
        return Step{batch, times.end, gain(batch) / to_seconds(times.end - now_).value};
      without.insert(loss->device);
    }
  }

  Result<RehearsedProgram*> find_way(std::int64_t batch, const std::set<std::string>& without) {
    const Slowness slowness = slowness_at(choices_.conditions.slow_downs, now_);
    const auto [known, is_new] = ways_.try_emplace({batch, without, slowness});
    if (is_new) {
      MOTLEY_ASSIGN(known->second, make_way(batch, without, slowness));
    }
    return known->second.get();
  }

  Result<std::shared_ptr<RehearsedProgram>> make_way(std::int64_t batch,
                                                     const std::set<std::string>& without,
                                                     const Slowness& slowness) const {
    std::shared_ptr<RehearsedProgram> none;
    MOTLEY_ASSIGN(const auto shares, find_split_if_any(chosen_, without, slowness, batch));
    if (!shares) return none;
    MOTLEY_ASSIGN(const Candidate candidate, space_.make({*shares, 1}));
    plan::Plan plan = candidate.planned.plan;
    // No squares are computed, so a single device needs no second micro-batch.
    if (plan.replicas.size() == 1)
      plan.replicas.front().micro_batches = chosen_.planned.plan.replicas.front().micro_batches;
    MOTLEY_ASSIGN(const Planned planned, lower_plan(chosen_.inputs, plan));
    return lay_out_if_possible(chosen_.inputs, planned, *cost_, choices_.conditions);
  }

  const ChosenPlan& chosen_;
  const BatchSpace& space_;
  const RehearsalChoices& choices_;
  const std::unique_ptr<const cost::CostModel> cost_;
  AvailabilityTrace availability_;
  std::vector<std::int64_t> batches_;
  std::map<std::tuple<std::int64_t, std::set<std::string>, Slowness>,
           std::shared_ptr<RehearsedProgram>>
      ways_;
  double noise_ = 0;
  std::int64_t step_ = 0;
  Nanoseconds now_ = 0;
};

}  // namespace

BatchSpace batch_space(const Adaptation& adaptation) {
  return {adaptation.batches->first, adaptation.least_batch, adaptation.batches->most,
          adaptation.batch};
}

Result<Rehearsed> rehearse_best_batches(const ChosenPlan& chosen, const BatchSpace& space,
                                        const RehearsalChoices& choices, double progress) {
  return BestBatches(chosen, space, choices).run(progress);
}

}  // namespace motley::control
