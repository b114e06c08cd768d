// Policies that rent for a job with a deadline.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "motley/base/json_fields.h"
#include "motley/base/text.h"
#include "motley/elastic/spot_gaps.h"
#include "peers/policies/deadline_policy.h"

namespace motley::peers {
namespace {

class OnDemand : public DeadlinePolicy {
 public:
  explicit OnDemand(const DeadlineJob& job) : DeadlinePolicy("on-demand", job) {}

 protected:
  Holding wanted(const JobState&) override { return Holding::kOnDemand; }
};

class Greedy : public DeadlinePolicy {
 public:
  explicit Greedy(const DeadlineJob& job) : DeadlinePolicy("greedy", job) {}

 protected:
  Holding wanted(const JobState& job_state) override {
    return job_state.is_there ? Holding::kSpot : Holding::kNothing;
  }
};

/// Keeps to the line from zero at the start to all at the deadline (Wu et al., NSDI 2024): spot
/// where available; on demand while behind the line, and until two change-overs ahead.
class UniformProgress : public DeadlinePolicy {
 public:
  explicit UniformProgress(const DeadlineJob& job) : DeadlinePolicy("uniform", job) {}

 protected:
  Holding wanted(const JobState& job_state) override {
    const Seconds whole = job().step * static_cast<double>(job().steps);
    const Seconds progress = whole - job_state.work;
    const Seconds ahead = progress - whole * (job_state.now / job().deadline);
    if (job_state.holding == Holding::kOnDemand && ahead < job().terms.change_over * 2)
      return Holding::kOnDemand;
    if (job_state.is_there) return Holding::kSpot;
    return ahead.value < 0 ? Holding::kOnDemand : Holding::kNothing;
  }
};

/// The renting plan from lifetimes and gaps, renewed every hour and when these have learned.
class Renting : public DeadlinePolicy {
 public:
  Renting(const DeadlineJob& job, elastic::Lifetimes lifetimes)
      : DeadlinePolicy("motley", job), lifetimes_(std::move(lifetimes)) {}

 protected:
  void learn(const JobState& job_state) override {
    plan_.reset();
    if (job_state.is_there) {
      // At first their age is unknown: as if they had just begun.
      gaps_.end(job_state.now);
      lifetimes_.begin(name_of_spell(), job().kind, job().zone, job_state.now);
      return;
    }
    gaps_.begin(job_state.now);
    if (spells_ > 0 || lifetimes_.machines().contains(name_of_spell())) {
      lifetimes_.end_lost(name_of_spell(), job_state.now);
      ++spells_;
    }
  }

  Holding wanted(const JobState& job_state) override {
    if (!plan_ || job_state.now - planned_at_ >= kEvery) plan(job_state);
    return plan_->best({job_state.work, job_state.slack, job_state.holding, job_state.is_there,
                        job_state.now - job_state.since});
  }

  Json learned() const override {
    return {
        {"lifetimes", lifetimes_.to_json()}, {"gaps", fields_to_json(gaps_)}, {"spells", spells_}};
  }

  Result<void> restore_learned(const Json& learned, const std::string& where) override {
    MOTLEY_ASSIGN(JsonObject object, JsonObject::make(learned, where));
    MOTLEY_ASSIGN(const Json* lifetimes, object.member("lifetimes"));
    MOTLEY_ASSIGN(const Json* gaps, object.member("gaps"));
    MOTLEY_ASSIGN(const std::int64_t spells, object.integer("spells"));
    MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
    MOTLEY_ASSIGN(lifetimes_,
                  elastic::Lifetimes::from_json(*lifetimes, where, lifetimes_.options()));
    MOTLEY_ASSIGN(gaps_, fields_from_json<elastic::SpotGaps>(*gaps, where));
    spells_ = static_cast<int>(spells);
    plan_.reset();
    return {};
  }

 private:
  static constexpr Seconds kEvery{3600};

  std::string name_of_spell() const { return fmt::format("spell {}", spells_); }

  void plan(const JobState& job_state) {
    const elastic::LifetimeForecast forecast = lifetimes_.forecast(job_state.now);
    const elastic::SpotBelief belief{forecast.hazard_of(job().kind, job().zone),
                                     gaps_.returns_per_second(job_state.now)};
    plan_.emplace(job().terms, belief, job_state.work,
                  std::max(job_state.slack, job().terms.change_over));
    planned_at_ = job_state.now;
  }

  elastic::Lifetimes lifetimes_;
  elastic::SpotGaps gaps_;
  int spells_ = 0;  // ended ones
  std::optional<elastic::RentingPlan> plan_;
  Seconds planned_at_;
};

}  // namespace

std::vector<std::string> deadline_policies() {
  return {"on-demand", "greedy", "uniform", "motley"};
}

Result<std::unique_ptr<policy::Policy>> make_deadline_policy(const std::string& name,
                                                             const DeadlineJob& job,
                                                             const elastic::Lifetimes& lifetimes) {
  if (name == "on-demand") return std::make_unique<OnDemand>(job);
  if (name == "greedy") return std::make_unique<Greedy>(job);
  if (name == "uniform") return std::make_unique<UniformProgress>(job);
  if (name == "motley") return std::make_unique<Renting>(job, lifetimes);
  const std::vector<std::string> known = deadline_policies();
  return usage_error("elastic.policy",
                     fmt::format("unknown policy '{}'{}; policies: {}", name,
                                 suggestion_clause(name, known), join(known, ", ")));
}

}  // namespace motley::peers
