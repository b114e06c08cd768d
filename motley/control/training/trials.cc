#include "motley/control/training/trials.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <utility>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/control/training/decision_log.h"
#include "motley/policy/plan_trials.h"
#include "motley/run/checkpoints/checkpoint.h"

namespace motley::control {
namespace {

/// Steps of training per tried plan: more than a trial takes, so that the trial can pay off.
constexpr std::int64_t kStepsPerTrial = 20;

/// A plan this much slower than the chosen one in an earlier run is not tried again.
constexpr double kKnownSlower = 1.05;

Result<Candidate> open_candidate(const std::string& text, const std::string& where,
                                 const Inputs& inputs) {
  MOTLEY_ASSIGN(plan::Plan plan, plan::parse_plan(text, where, inputs.cluster));
  MOTLEY_RETURN_IF_ERROR(plan::verify_plan(plan, inputs.model->hash, inputs.cluster));
  return Candidate{describe_plan(plan, inputs.cluster), {std::move(plan), nullptr}};
}

Result<void> lower_first(const Inputs& inputs, Adaptation& adaptation) {
  Candidate& first = adaptation.candidates[static_cast<std::size_t>(adaptation.first)];
  if (first.planned.program) return {};
  MOTLEY_RETURN_IF_ERROR(lower_candidate(inputs, adaptation, first));
  predict_candidate(inputs, adaptation, first);
  return {};
}

Result<std::unique_ptr<policy::Policy>> make_trials(const Adaptation& adaptation) {
  std::vector<policy::TriedPlan> plans;
  for (const Candidate& candidate : adaptation.candidates)
    plans.push_back({candidate.label, candidate.priced});
  return std::make_unique<policy::PlanTrials>(std::move(plans));
}

}  // namespace

Result<std::shared_ptr<Adaptation>> find_trials(const ChosenPlan& chosen,
                                                const std::optional<Predicted>& predicted) {
  if (!chosen.outcome || chosen.outcome->alternatives.empty()) return std::shared_ptr<Adaptation>();
  auto adaptation = std::make_shared<Adaptation>();
  adaptation->make_policy = make_trials;
  const Inputs& inputs = chosen.inputs;
  adaptation->costs = chosen.priced.costs;
  Candidate first{describe_plan(chosen.planned.plan, inputs.cluster), chosen.planned};
  first.priced = chosen.outcome->predicted_step;
  first.predicted = predicted;
  adaptation->candidates.push_back(std::move(first));
  const std::optional<Seconds>& known = chosen.outcome->measured_step;
  for (const plan::Alternative& other : chosen.outcome->alternatives) {
    // An earlier run has measured both.
    if (known && other.measured && other.measured->value > kKnownSlower * known->value) continue;
    Candidate candidate{describe_plan(other.plan, inputs.cluster), {other.plan, nullptr}};
    candidate.priced = other.step;
    if (candidate.label == adaptation->candidates.front().label) candidate.label += ", otherwise";
    adaptation->candidates.push_back(std::move(candidate));
  }
  return adaptation;
}

Result<bool> limit_trials(std::int64_t steps, Adaptation& adaptation) {
  if (adaptation.policy || !adaptation.make_policy) return true;
  const auto most = static_cast<std::size_t>(std::max<std::int64_t>(0, steps / kStepsPerTrial));
  while (adaptation.candidates.size() > std::max<std::size_t>(1, most))
    adaptation.candidates.pop_back();
  if (adaptation.candidates.size() < 2) return false;
  MOTLEY_ASSIGN(adaptation.policy, adaptation.make_policy(adaptation));
  return true;
}

namespace {

struct Kept {
  std::vector<std::string> plans;
  std::int64_t current = 0;
  double lr_factor = 1;
  std::int64_t counts_every = 1;
  Json state;
};

Result<Kept> read_kept(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  MOTLEY_ASSIGN(const Json json, parse_json(text, path));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, path));
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema != kPolicySchema)
    return usage_error("policy.schema",
                       path + ": found schema '" + schema + "', wanted '" + kPolicySchema + "'");
  Kept kept;
  MOTLEY_ASSIGN(kept.plans, object.strings("plans"));
  MOTLEY_ASSIGN(kept.current, object.integer("current"));
  MOTLEY_ASSIGN(const Json* state, object.member("state"));
  kept.state = *state;
  if (object.has("lr_factor")) {  // older files have none
    MOTLEY_ASSIGN(kept.lr_factor, object.number("lr_factor"));
  }
  if (object.has("counts_every")) {
    MOTLEY_ASSIGN(kept.counts_every, object.integer("counts_every"));
  }
  if (kept.current < 0 || kept.current >= static_cast<std::int64_t>(kept.plans.size()))
    return usage_error("policy.state", path + ": key 'current': there is no such plan");
  return kept;
}

Result<void> take_kept(const std::string& path, const ChosenPlan& chosen, Adaptation& adaptation) {
  MOTLEY_ASSIGN(const Kept kept, read_kept(path));
  std::deque<Candidate> candidates;
  for (const std::string& text : kept.plans) {
    MOTLEY_ASSIGN(Candidate candidate, open_candidate(text, path, chosen.inputs));
    const plan::Plan& plan = candidate.planned.plan;
    if (plan.recipe != chosen.planned.plan.recipe ||
        (!adaptation.batches && plan.global_batch != chosen.planned.plan.global_batch))
      return usage_error("policy.state", path + ": its plans are of another batch or recipe");
    if (static_cast<std::int64_t>(candidates.size()) == kept.current)
      candidate.lr_factor = kept.lr_factor;
    candidates.push_back(std::move(candidate));
  }
  std::swap(adaptation.candidates, candidates);
  auto policy = adaptation.make_policy(adaptation);
  Result<void> restored =
      policy ? (*policy)->restore(kept.state, path) : tl::make_unexpected(policy.error());
  if (!restored) {
    std::swap(adaptation.candidates, candidates);
    return restored;
  }
  adaptation.policy = std::move(*policy);
  adaptation.first = static_cast<int>(kept.current);
  adaptation.counts_every = std::max<std::int64_t>(1, kept.counts_every);
  return lower_first(chosen.inputs, adaptation);
}

}  // namespace

Result<void> resume_adaptation(const RunDirectory& directory, const ChosenPlan& chosen,
                               Listener& listener, Adaptation& adaptation) {
  const std::string path = directory.latest_checkpoint() + "/policy.json";
  if (!std::filesystem::exists(path)) return {};
  if (const auto taken = take_kept(path, chosen, adaptation); !taken)
    listener.note("what was decided before is not gone on with: " + taken.error().message);
  return {};
}

Result<std::shared_ptr<Adaptation>> repeat_decisions(const std::string& path, const Inputs& inputs,
                                                     const Planned& first) {
  MOTLEY_ASSIGN(const std::vector<policy::Decision> decisions, read_decisions(path));
  auto adaptation = std::make_shared<Adaptation>();
  std::vector<std::pair<std::string, double>> known;  // plans, each with a learning-rate factor
  int runs = -1;                                      // the running candidate; -1: none yet
  std::int64_t begins = 0;
  for (const policy::Decision& decision : decisions) {
    if (decision.plan.empty()) continue;
    const auto* batch = std::get_if<policy::UseBatch>(&decision.choice.action);
    const std::pair own{decision.plan, batch ? batch->lr_factor : 1.0};
    auto found = std::find(known.begin(), known.end(), own);
    const auto index = static_cast<int>(found - known.begin());
    if (found == known.end()) {
      MOTLEY_ASSIGN(Candidate candidate, open_candidate(decision.plan, path, inputs));
      if (candidate.planned.plan == first.plan) candidate.planned = first;  // has its program
      candidate.lr_factor = own.second;
      adaptation->candidates.push_back(std::move(candidate));
      known.push_back(own);
    }
    // The later plan computed the steps that were lost and recomputed.
    while (!adaptation->given.empty() && adaptation->given.back().begins >= decision.begins) {
      adaptation->given.pop_back();
      adaptation->given_candidates.pop_back();
      runs = adaptation->given.empty() ? adaptation->first : adaptation->given_candidates.back();
    }
    // The beginning may have been lost, too.
    if (adaptation->given.empty() && runs >= 0 && decision.begins <= begins) runs = -1;
    if (runs < 0) {
      adaptation->first = index;
      begins = decision.begins;
    }
    if (runs >= 0 && index != runs) {
      adaptation->given.push_back(decision);
      adaptation->given_candidates.push_back(index);
    }
    runs = index;
  }
  if (known.empty()) return usage_error("decisions.none", path + ": has no decision");
  const bool changes_batch =
      std::any_of(decisions.begin(), decisions.end(), [](const policy::Decision& decision) {
        return std::holds_alternative<policy::UseBatch>(decision.choice.action);
      });
  if (changes_batch) {
    const auto batch = [](const Candidate& each) { return each.planned.plan.global_batch; };
    run::Batches& batches = adaptation->batches.emplace();
    batches.first = batch(adaptation->candidates.front());
    for (const Candidate& each : adaptation->candidates)
      batches.most = std::max(batches.most, batch(each));
  }
  MOTLEY_RETURN_IF_ERROR(lower_first(inputs, *adaptation));
  return adaptation;
}

Result<void> resume_decisions(const RunDirectory& directory, const Inputs& inputs,
                              Adaptation& adaptation) {
  std::error_code code;
  if (!std::filesystem::exists(directory.latest_checkpoint(), code)) return {};
  const auto found =
      run::open_checkpoint(directory.latest_checkpoint(), run::TensorFiles::Extent::kSome);
  if (!found) return {};  // the workers report its error
  std::size_t over = 0;
  while (over < adaptation.given.size() && adaptation.given[over].begins <= found->state.step)
    adaptation.first = adaptation.given_candidates[over++];
  const auto count = static_cast<std::ptrdiff_t>(over);
  adaptation.given.erase(adaptation.given.begin(), adaptation.given.begin() + count);
  adaptation.given_candidates.erase(adaptation.given_candidates.begin(),
                                    adaptation.given_candidates.begin() + count);
  return lower_first(inputs, adaptation);
}

}  // namespace motley::control
