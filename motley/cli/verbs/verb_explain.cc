#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "motley/cli/context/progress_printer.h"
#include "motley/cli/options/planning_options.h"
#include "motley/cli/print/print_what_if.h"

namespace motley::cli {
namespace {

struct ExplainOptions {
  PlanOrFile plan;
  std::vector<std::string> what_if;
  std::int64_t samples = 0;
};

/// Is this a planning flag that a plan file leaves open?
bool is_open(const Flag& flag) {
  constexpr std::string_view kOpen[] = {
      "-m,--model", "-C,--cluster", "--planner", "--exclude",        "--updates",
      "--bucket",   "--profiles",   "--profile", "--profile-rounds", "--time-limit"};
  return std::find(std::begin(kOpen), std::end(kOpen), flag.names) != std::end(kOpen);
}

std::vector<Flag> explain_flags(ExplainOptions& options) {
  options.plan.planning.profile = control::Missing::kModel;  // a changed machine cannot be measured
  std::vector<Flag> flags = {
      {"plan", &options.plan.file, "plan file"},
      {"--what-if", &options.what_if,
       "a question to the planner: '+1 a100-40g@c', '-c:0', 'link a-b x2', 'memory c:0 24GiB', "
       "'batch 256'; may be repeated (default: the obvious ones)"},
      survive_flag(options.plan.planning,
                   "as an elastic run of which so many devices may be lost at once: with mirrors"),
      samples_flag(options.samples)};
  for (Flag& flag : planning_flags(options.plan.planning))
    if (is_open(flag)) flags.push_back(std::move(flag));
  return flags;
}

/// Returns the training of the plan; flags give what the plan leaves open.
Result<control::Asked> ask_again(const ExplainOptions& options, const control::ChosenPlan& chosen,
                                 const Context& context) {
  const plan::Plan& plan = chosen.planned.plan;
  control::Asked asked;
  MOTLEY_ASSIGN(asked.cluster, cluster::read_cluster(options.plan.planning.cluster));
  MOTLEY_ASSIGN(asked.question, make_question(options.plan.planning, GlobalBatch::kElsewhere));
  asked.question.global_batch = plan.global_batch;
  asked.question.lowering.recipe = plan.recipe;
  asked.question.lowering.batch_norm = plan.batch_norm;
  asked.question.tf32 = plan.tf32;
  MOTLEY_ASSIGN(asked.choices, make_plan_choices(options.plan.planning, context));
  if (plan.batch_norm_span == plan::BatchNormSpan::kMicroBatch)
    asked.choices.micro_batches = plan.replicas.front().micro_batches;
  return asked;
}

Result<std::vector<control::WhatIf>> find_questions(const ExplainOptions& options,
                                                    const control::Asked& asked,
                                                    const control::ChosenPlan& chosen,
                                                    const control::Predicted& predicted) {
  if (options.what_if.empty())
    return obvious_what_ifs(asked, chosen.inputs, chosen.planned.plan, predicted);
  std::vector<control::WhatIf> questions;
  for (const std::string& text : options.what_if) {
    MOTLEY_ASSIGN(auto question, parse_what_if(text, asked));
    questions.push_back(std::move(question));
  }
  return questions;
}

Result<int> explain_plan(const ExplainOptions& options, const Context& context) {
  MOTLEY_RETURN_IF_ERROR(check_samples(options.samples));
  MOTLEY_ASSIGN(const auto chosen, choose_plan(options.plan, control::Prices::kAsAsked, context));
  MOTLEY_ASSIGN(const control::Predicted predicted,
                control::foresee(chosen->inputs, chosen->planned.plan, chosen->priced));
  MOTLEY_ASSIGN(const control::Asked asked, ask_again(options, *chosen, context));
  MOTLEY_ASSIGN(auto questions, find_questions(options, asked, *chosen, predicted));
  questions.insert(questions.begin(),
                   {"as it is, planned again", cluster::edit_nothing(asked.cluster),
                    asked.question.global_batch});
  ProgressPrinter printer(context);
  printer.note(fmt::format("asking the planner {} questions", questions.size()));
  Explained explained{chosen->inputs, chosen->planned.plan, predicted,
                      find_consequences(questions, asked, printer.outside()), options.samples};
  if (context.print_phase.empty() || context.json)
    context.result(print_explained(explained), explained_to_json(explained));
  return kDone;
}

}  // namespace

Verb explain_verb() {
  return make_verb("explain", "show the bottleneck of a plan and what would remove it",
                   explain_flags, explain_plan);
}

}  // namespace motley::cli
