#include "motley/control/planning/planning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/deadline.h"
#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/control/planning/measuring.h"
#include "motley/control/planning/mirroring.h"
#include "motley/control/planning/survivors.h"
#include "motley/control/planning/tried_plans.h"
#include "motley/cost/device_keys.h"
#include "motley/program/memory.h"
#include "motley/program/program_text.h"
#include "motley/search/accumulating.h"
#include "motley/search/carrying.h"
#include "motley/search/given_planner.h"
#include "motley/search/planners.h"
#include "motley/synth/state/commit.h"

namespace motley::control {
namespace {

Result<std::unique_ptr<plan::Planner>> find_planner(const search::PlannerInputs& known,
                                                    const PlanChoices& choices) {
  std::unique_ptr<plan::Planner> planner = std::make_unique<search::GivenPlanner>(known);
  if (choices.stages.empty()) {
    const std::string name = choices.manual.empty() ? choices.planner : "manual";
    MOTLEY_ASSIGN(planner, search::make_planner(name, known, choices.planners));
  }
  if (choices.micro_batches > 1)
    planner =
        std::make_unique<search::Accumulating>(known, std::move(planner), choices.micro_batches);
  if (choices.sync.kind != search::Sync::Kind::kAuto)
    planner = std::make_unique<search::Synchronised>(known, std::move(planner), choices.sync);
  if (!choices.carried || choices.carried->exchanges > 0)
    planner = std::make_unique<search::Carrying>(known, std::move(planner), choices.carried);
  return planner;
}

/// Runs the planner, also for plans that must survive losses. `problem` lacks some of `choices`.
Result<plan::PlanOutcome> search(const Inputs& inputs, const PlanChoices& choices,
                                 const Priced& priced, const plan::Problem& problem) {
  const SearchBy once = [&](const search::PlannerInputs& known, const PlanChoices& by,
                            int copies) -> Result<plan::PlanOutcome> {
    PlanChoices allowed = by;
    if (!inputs.carries || inputs.layers) allowed.carried = plan::Carried();
    MOTLEY_ASSIGN(const auto planner, find_planner(known, allowed));
    plan::Problem asked = problem;
    asked.copies = copies;
    return planner->plan(asked);
  };
  return must_survive(inputs) ? find_survivor(inputs, choices, priced, once)
                              : once(priced.evaluator->inputs(), choices, 0);
}

/// "a:0 is to hold 23 GiB, and 20.9 GiB of its 24 GiB would fit nine times in ten" and so on.
std::string say_tight(const cluster::Cluster& sure, const plan::PlanOutcome& outcome) {
  std::vector<std::string> tight;
  for (const auto& [id, bytes] : outcome.peak) {
    const cluster::Device& device = sure.device(id);
    if (device.room() && bytes > *device.room())
      tight.push_back(fmt::format("{} is to hold {}, and {} of its {} would fit nine times in ten",
                                  device.name, format_bytes(bytes), format_bytes(*device.room()),
                                  format_bytes(*device.memory)));
  }
  constexpr std::size_t kMost = 3;
  const std::size_t named = std::min(kMost, tight.size());
  std::string text = "it may not fit, as nobody measured what is needed there";
  for (std::size_t i = 0; i < named; ++i) text += (i == 0 ? ": " : "; ") + tight[i];
  if (tight.size() > named) text += fmt::format("; and {} more", tight.size() - named);
  return text;
}

/// Searches again in all memory, leaving nothing free, if nothing else fits. Both searches share
/// the time limit.
Result<plan::PlanOutcome> search_all(Inputs& inputs, const PlanChoices& choices,
                                     const Priced& priced, plan::Problem problem) {
  const Deadline deadline = Deadline::after(problem.time_limit);
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, search(inputs, choices, priced, problem));
  const auto leaves_some = [](const cluster::Device& device) { return device.spare.value > 0; };
  std::vector<cluster::Device>& devices = inputs.cluster.devices;
  if (outcome.reason != plan::Reason::kInfeasible ||
      std::none_of(devices.begin(), devices.end(), leaves_some))
    return outcome;
  const cluster::Cluster sure = inputs.cluster;
  for (cluster::Device& device : devices) device.spare = Bytes(0);
  problem.time_limit = deadline.left();
  MOTLEY_ASSIGN(outcome, search(inputs, choices, priced, problem));
  outcome.may_not_fit = outcome.plan.has_value();
  if (outcome.may_not_fit) outcome.why.insert(outcome.why.begin(), say_tight(sure, outcome));
  return outcome;
}

Result<void> search_once(Inputs& inputs, const PlanChoices& choices, const Clock& clock,
                         Answer& answer) {
  plan::Problem problem = make_problem(inputs, choices);
  if (answer.outcome.plan) problem.known = {{*answer.outcome.plan, answer.outcome.why}};
  if (choices.time_limit) problem.time_limit = *choices.time_limit - Seconds(answer.elapsed_s);
  const Seconds start = clock.steady();
  MOTLEY_ASSIGN(answer.outcome, search_all(inputs, choices, answer.priced, problem));
  if (answer.outcome.plan) answer.outcome.plan->tf32 = inputs.tf32;
  if (inputs.layers)
    for (std::string& note : cost::say_untimed(*inputs.layers->profile))
      answer.outcome.why.push_back(std::move(note));
  answer.elapsed_s += (clock.steady() - start).value;
  return {};
}

/// Does the plan split only the batch, into unequal micro-batches?
bool has_unlike_micro_batches(const plan::Plan& plan) {
  const std::int64_t times = plan.replicas.front().micro_batches;
  bool is_unlike = false;
  for (const plan::Replica& each : plan.replicas) {
    if (each.regions.size() > 1 || each.regions.front().devices.size() > 1) return false;
    is_unlike = is_unlike || each.micro_batches != times || each.samples % times != 0;
  }
  return is_unlike && plan.owners.empty();
}

}  // namespace

plan::Problem make_problem(const Inputs& inputs, const PlanChoices& choices) {
  plan::Problem problem;
  problem.cluster = &inputs.cluster;
  problem.model_hash = inputs.model->hash;
  problem.global_batch = inputs.global_batch;
  if (!inputs.graph().sizes.empty()) {
    problem.min_samples = inputs.graph().sizes[0].min;
    problem.max_samples = inputs.graph().sizes[0].max;
  }
  if (inputs.most_samples)
    problem.max_samples = std::min(problem.max_samples, *inputs.most_samples);
  problem.recipe = inputs.lowering.recipe;
  problem.batch_norm = inputs.lowering.batch_norm;
  problem.bucket_bytes = inputs.lowering.bucket_bytes;
  problem.most_bucket_bytes = choices.most_bucket_bytes;
  problem.updates = inputs.lowering.updates;
  problem.devices = inputs.devices;
  problem.manual = choices.manual;
  problem.stages = choices.stages;
  problem.seed = choices.seed;
  return problem;
}

Result<plan::PlanOutcome> plan_again(Inputs inputs, const PlanChoices& choices,
                                     const Priced& priced) {
  plan::Problem problem = make_problem(inputs, choices);
  if (choices.time_limit) problem.time_limit = *choices.time_limit;
  auto outcome = search_all(inputs, choices, priced, problem);
  if (outcome || outcome.error().code != "search.sync") return outcome;
  PlanChoices any = choices;
  any.sync = {};
  return search_all(inputs, any, priced, problem);
}

Result<Answer> find_plan(Inputs& inputs, const PlanChoices& choices, const Outside& outside) {
  MOTLEY_RETURN_IF_ERROR(
      synth::check_devices(inputs.graph(), inputs.devices.size(), inputs.lowering.batch_norm));
  Answer answer;
  for (int round = 0; round < kPlanningRounds; ++round) {
    MOTLEY_ASSIGN(answer.priced, price(inputs, choices.prices, outside));
    MOTLEY_RETURN_IF_ERROR(search_once(inputs, choices, outside.clock, answer));
    answer.planned.reset();
    if (!answer.outcome.plan) return answer;
    if (choices.prices.missing != Missing::kMeasure || !may_measure(inputs, *answer.outcome.plan))
      break;
    MOTLEY_ASSIGN(answer.planned, lower_plan(inputs, *answer.outcome.plan));
    MOTLEY_ASSIGN(cost::ProfileStore store, open_store(choices.prices.profiles));
    MOTLEY_ASSIGN(const Learned learned,
                  measure_plan(inputs, answer.planned->program, *answer.priced.costs,
                               choices.prices.rounds, store, outside));
    if (learned == Learned::kNothing) break;
  }
  const plan::Plan searched = *answer.outcome.plan;
  MOTLEY_RETURN_IF_ERROR(prefer_measured(inputs, answer));
  if (*answer.outcome.plan != searched) answer.planned.reset();
  MOTLEY_RETURN_IF_ERROR(show_plan(inputs, *answer.outcome.plan, outside.listener));
  return answer;
}

Result<Planned> lower_plan(const Inputs& inputs, plan::Plan plan) {
  if (!inputs.carries) plan.carried = {};
  MOTLEY_ASSIGN(program::Program program, synth::lower(inputs.graph(), plan, inputs.cluster));
  MOTLEY_ASSIGN(program, add_mirrors(inputs, plan, std::move(program)));
  if (inputs.commits) {
    MOTLEY_ASSIGN(program, synth::with_commit(std::move(program)));
  }
  return Planned{std::move(plan), std::make_shared<const program::Program>(std::move(program))};
}

Result<Planned> read_plan(const std::string& path, Inputs& inputs) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  MOTLEY_ASSIGN(plan::Plan plan, plan::parse_plan(text, path, inputs.cluster));
  if (const auto verified = plan::verify_plan(plan, inputs.model->hash, inputs.cluster); !verified)
    return with_context(path, verified.error());
  const plan::Recipe& asked = inputs.lowering.recipe;
  if (asked != plan::Recipe() && asked != plan.recipe)
    return usage_error("plan.recipe-other",
                       path +
                           ": was made for another recipe than the flags say (--optimizer, --lr "
                           "and what belongs to them); leave them out, or plan again with them");
  if (inputs.tf32 && !plan.tf32)
    return usage_error("plan.tf32-other",
                       path + ": was made without --tf32; leave it out, or plan again with it");
  MOTLEY_RETURN_IF_ERROR(follow_plan(plan, inputs));
  MOTLEY_ASSIGN(Planned planned, lower_plan(inputs, std::move(plan)));
  MOTLEY_RETURN_IF_ERROR(check_memory(inputs, planned));
  return planned;
}

Result<void> check_memory(const Inputs& inputs, const Planned& planned) {
  const std::vector<plan::Member> members = plan::members(planned.plan);
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const program::DeviceProgram& program = planned.program->devices[rank];
    const cluster::Device& device = inputs.cluster.device(members[rank].device);
    const Bytes tensors = program::find_memory_peak(program).total;
    const Bytes peak = cost::with_framework(device, tensors);
    if (device.memory && peak > *device.memory)
      return tl::make_unexpected(
          Error{ErrorKind::kInfeasible, "plan.memory",
                fmt::format("{} needs {} for {} samples, has {}; plan again", device.name,
                            format_bytes(peak), program.samples, format_bytes(*device.memory))});
  }
  return {};
}

Result<void> show_plan(const Inputs& inputs, const plan::Plan& plan, Listener& listener) {
  MOTLEY_RETURN_IF_ERROR(
      listener.phase(Phase::kSearch, [&] { return plan::print_plan(plan, inputs.cluster); }));
  return listener.phase(Phase::kSynth, [&] {
    const auto planned = lower_plan(inputs, plan);
    return planned ? program::print_program(*planned->program) : planned.error().message;
  });
}

Error infeasible_error(const plan::PlanOutcome& outcome) {
  const std::string what =
      outcome.reason == plan::Reason::kLimit ? "no plan that fits was found" : "no feasible plan";
  return {ErrorKind::kInfeasible, "plan.infeasible", what + ": " + join(outcome.why, "; ")};
}

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

}  // namespace motley::control
