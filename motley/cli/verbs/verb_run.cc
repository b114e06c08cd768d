#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cli/app.h"
#include "motley/cli/context/progress_printer.h"
#include "motley/cli/launched.h"
#include "motley/cli/options/batch_options.h"
#include "motley/cli/options/run_options.h"
#include "motley/control/claim.h"
#include "motley/control/planning/mirroring.h"
#include "motley/control/planning/placing.h"
#include "motley/control/planning/tried_plans.h"
#include "motley/control/training/correcting.h"
#include "motley/control/training/decision_log.h"
#include "motley/control/training/growth.h"
#include "motley/control/training/joiner.h"
#include "motley/control/training/replanning.h"
#include "motley/control/training/splits.h"
#include "motley/control/training/takeover.h"
#include "motley/control/training/trials.h"
#include "motley/control/view/live_page.h"
#include "motley/report/report.h"
#include "motley/run/checkpoints/checkpoint.h"
#include "motley/simulate/conditions_file.h"
#include "peers/policies/policies.h"

namespace motley::cli {
namespace {

void put_under_headings(std::vector<Flag>& flags) {
  put_under("While it trains", {"--adapt", "--policy", "--decisions", "--conditions"}, flags);
  put_under(
      "Devices that come and go",
      {"--elastic", "--notice", "--notice-hook", "--listen", "--survive", "--absent", "--succeed"},
      flags);
  put_under("Checkpoints", {"--resume", "--checkpoint", "--checkpoint-every"}, flags);
  put_under("Scripts", {"--prepare", "--eval-samples"}, flags);
}

std::vector<Flag> checkpoint_flags(control::TrainChoices& training) {
  using PartsAt = control::TrainChoices::PartsAt;
  return {{"--resume",
           one_of("cli.resume", "--resume", training.resume, {{"auto", true}, {"never", false}}),
           "auto: continue from the last checkpoint, if there is one; never: start anew", kShown},
          {"--checkpoint",
           one_of("cli.flags", "--checkpoint", training.parts_at,
                  {{"lead", PartsAt::kLead}, {"hosts", PartsAt::kHosts}}),
           "where ranks on other hosts write their parts: lead (to the coordinator) or hosts (each "
           "keeps its own)",
           kShown},
          {"--checkpoint-every", &training.checkpoint_every,
           "steps between checkpoints; 0: only at the end", kShown}};
}

std::vector<Flag> run_flags(RunOptions& options) {
  std::vector<Flag> flags = training_flags(options);
  const std::vector<Flag> evaluation = evaluation_flags(options);
  flags.insert(flags.end(), evaluation.begin(), evaluation.end());
  flags.insert(
      flags.end(),
      {{"--plan", &options.plan.file, "plan file (default: make a plan first)"},
       {"--adapt", &options.adapt,
        "plan: time the best plans on real steps and keep the fastest; split: learn the split of "
        "the batch; batch: adapt batch, split and devices to the gradient noise; none: keep the "
        "plan; auto: plan if the planner is auto and there are steps enough",
        kShown},
       {"--policy", &options.policy,
        "with --adapt split: motley, even, hetseq, adaptdl, lb-bsp or cannikin; with --adapt "
        "batch: motley, adaptdl, cannikin, simigrad or jabas",
        kShown},
       {"--decisions", &options.decisions,
        "decisions.jsonl of another run: repeat its changes of plan at the same steps"},
       {"--elastic", &options.elastic,
        "continue when devices are lost, leave (motley leave) or join (motley join); each step "
        "completes on every device or is rolled back"},
       {"--notice", &options.training.notices,
        "source of notices that this machine will be reclaimed (docs/formats/notices.md): aws, "
        "gcp, azure, slurm, kubernetes, file:PATH (repeatable); a named device leaves an elastic "
        "run, any other run stops with a checkpoint"},
       {"--notice-hook", &options.training.notice_hook,
        "command to start on a notice, to ask for a replacement"},
       {"--listen", &options.port,
        "with --elastic: port at which devices may join; 0: any free port", kShown},
       survive_flag(options.plan.planning,
                    "with --elastic: number of devices that may be lost at once without going back "
                    "to a checkpoint; other devices keep mirrors of their state"),
       {"--absent", &options.absent, "with --elastic: device that is not there yet (repeatable)"},
       {"--succeed", &options.take_over, "for agents: take over the run of a lost coordinator"},
       {"--conditions", &options.conditions,
        "file (docs/formats/conditions.md) of slow-downs of emulated devices and, with --elastic, "
        "of absences"}});
  for (Flag& flag : checkpoint_flags(options.training)) flags.push_back(std::move(flag));
  flags.insert(flags.end(), {{"--prepare", &options.prepare,
                              "write the run directory and start nothing; scripts with a loop of "
                              "their own (motley.Run) need no --data and --steps"},
                             {"--eval-samples", &options.evaluation.samples,
                              "with --prepare: number of samples that the script evaluates on"}});
  put_under_headings(flags);
  std::vector<Flag> batch = batch_flags(options.batch);
  for (Flag& flag : batch) flag.group = "While it trains";
  flags.insert(flags.end(), batch.begin(), batch.end());
  const std::vector<Flag> rent = rent_flags(options.rent);
  flags.insert(flags.end(), rent.begin(), rent.end());
  return flags;
}

std::string model_text(const control::Measured& measured, const std::string& run_dir) {
  const auto held = run::held_files(measured.checkpoint);
  if (!held || held->empty()) return fmt::format("model      {}/model.safetensors\n", run_dir);
  return fmt::format("model      in parts, on their hosts: motley consolidate {} --hosts\n",
                     run_dir);
}

std::string evaluation_text(const control::Measured& measured,
                            const control::PreparedRun& prepared) {
  const auto best = measured.evaluations.find(measured.best_step);
  if (best == measured.evaluations.end() || measured.stopped) return {};
  const run::EvaluationJob& job = *prepared.job.evaluation;
  const auto steps = static_cast<std::int64_t>(measured.losses.size());
  std::string text;
  if (steps < prepared.job.steps && !prepared.job.batches)
    text = fmt::format("ended after step {} of {}: {} evaluation{} without a better {}\n", steps,
                       prepared.job.steps, job.patience, job.patience == 1 ? "" : "s",
                       job.watch.metric);
  return text + fmt::format("best       {}/model_best.safetensors, after step {}: {}\n",
                            prepared.choices.run_dir, best->first,
                            control::print_evaluation(best->second));
}

std::string summary_text(const control::Measured& measured, const control::PreparedRun& prepared) {
  std::string text = fmt::format(
      "{} steps, loss {:.5f} -> {:.5f}, {} a step", measured.losses.size(),
      measured.losses.empty() ? 0.0 : measured.losses.front(),
      measured.losses.empty() ? 0.0 : measured.losses.back(), format_seconds(measured.step));
  const control::LastPlan last = control::last_plan(prepared, measured);
  if (last.predicted && measured.step.value > 0)
    text += fmt::format(" (plan {}, {:+.1f}%)", format_seconds(*last.predicted),
                        100 * (measured.step / *last.predicted - 1));
  text += "\n";
  for (const control::RankSummary& rank : control::rank_summaries(prepared, measured))
    text +=
        fmt::format("  {:<10} {:>5} samples  busy {:>3.0f}%  peak {}\n", rank.device, rank.samples,
                    100 * rank.busy.value_or(0), format_bytes(Bytes(rank.peak_bytes.value_or(0))));
  if (const auto& rented = measured.rented)
    text += fmt::format("rented     {:.3g} paid{}, {} {} the deadline\n", rented->paid,
                        prepared.choices.renting->budget
                            ? fmt::format(" of {:.3g}", *prepared.choices.renting->budget)
                            : "",
                        elastic::print_duration(Seconds(std::abs(rented->spare.value))),
                        rented->spare.value < 0 ? "behind" : "before");
  if (measured.waiting.is_noticed()) text += control::print_waiting(measured.waiting) + "\n";
  text += fmt::format("checkpoint {}\n", measured.checkpoint);
  if (!measured.stopped) text += model_text(measured, prepared.choices.run_dir);
  return text + evaluation_text(measured, prepared);
}

/// Stores the predictions of the last plan and of the tried ones with their measurements.
Result<void> keep_error(const control::PreparedRun& prepared, const control::Predicted& predicted,
                        control::Measured measured, const std::string& profiles) {
  MOTLEY_ASSIGN(cost::ProfileStore store, control::open_store(profiles));
  std::vector<std::int64_t> peaks;
  for (const control::RankSummary& rank : control::rank_summaries(prepared, measured))
    if (rank.peak_bytes) peaks.push_back(*rank.peak_bytes);
  measured.peak_bytes = std::move(peaks);
  MOTLEY_RETURN_IF_ERROR(control::remember(*prepared.inputs, predicted, measured, store));
  if (!prepared.adaptation) return {};
  for (const control::Candidate& each : prepared.adaptation->candidates)
    if (each.predicted)
      MOTLEY_RETURN_IF_ERROR(control::remember_tried(
          *prepared.inputs, {each.planned.plan, each.predicted->seconds(), each.measured}, store));
  return {};
}

bool are_processors(const control::Inputs& inputs) {
  return std::all_of(inputs.devices.begin(), inputs.devices.end(),
                     [&](DeviceId device) { return inputs.cluster.device(device).kind == "cpu"; });
}

Result<std::shared_ptr<control::Adaptation>> adapt_batch(const RunOptions& options,
                                                         const control::TrainChoices& choices,
                                                         const control::ChosenPlan& chosen,
                                                         std::int64_t first_batch) {
  MOTLEY_ASSIGN(control::BatchChoices batch, make_batch_choices(options, chosen, choices));
  batch.is_elastic = options.elastic;
  if (options.elastic)
    batch.fewest_devices = static_cast<std::size_t>(options.plan.planning.survive) + 1;
  batch.first_batch = first_batch;
  return control::adapt_batch(chosen, batch);
}

/// Returns how the run may change; null: it stays as planned. `first_batch`: initial batch of a
/// continued training whose batch changes; 0: the training is new, or its batch is constant.
Result<std::shared_ptr<control::Adaptation>> find_adaptation(
    const RunOptions& options, const control::TrainChoices& choices,
    const control::ChosenPlan& chosen, const std::optional<control::Predicted>& predicted,
    std::int64_t first_batch, const Context& context, control::Listener& listener) {
  const std::shared_ptr<control::Adaptation> none;
  if (!options.decisions.empty()) {
    MOTLEY_ASSIGN(auto repeated,
                  control::repeat_decisions(options.decisions, chosen.inputs, chosen.planned));
    if (choices.resume)
      MOTLEY_RETURN_IF_ERROR(
          control::resume_decisions({choices.run_dir}, chosen.inputs, *repeated));
    return repeated;
  }
  const bool is_split = options.adapt == "split", is_batch = options.adapt == "batch";
  const bool is_asked = is_split || is_batch || options.adapt == "plan";
  if (options.adapt != "auto" && options.adapt != "none" && !is_asked)
    return usage_error("cli.adapt", "--adapt: found '" + options.adapt +
                                        "', wanted auto, none, plan, split or batch");
  if (options.policy != "motley" && !is_split && !is_batch)
    return usage_error("cli.policy", "--policy goes with --adapt split or batch");
  if (!is_batch) MOTLEY_RETURN_IF_ERROR(refuse_batch_flags(options.batch));
  if (options.adapt == "none" || options.prepare) return none;
  const bool is_here = control::are_all_here(chosen.inputs.cluster, chosen.inputs.devices);
  if (is_asked && !is_here && is_launched(context))
    return usage_error("cli.adapt",
                       "--adapt " + options.adapt +
                           ": a launcher started ranks on other hosts, where a running plan cannot "
                           "be changed; leave it out, or start the run without a launcher");
  // By default the user's own plan stays, and none is tried where trials cost too much or are new.
  if (!is_asked && (!is_here || data::is_loaded(choices.data) || !chosen.outcome ||
                    !are_processors(chosen.inputs)))
    return none;
  Result<std::shared_ptr<control::Adaptation>> found =
      is_split   ? control::adapt_split(chosen, predicted, options.policy, peers::split_policies())
      : is_batch ? adapt_batch(options, choices, chosen, first_batch)
                 : control::find_trials(chosen, predicted);
  MOTLEY_RETURN_IF_ERROR(found);
  if (*found == nullptr) {
    if (is_asked) listener.note("no other plan is worth a trial");
    return none;
  }
  if (choices.resume)
    MOTLEY_RETURN_IF_ERROR(
        control::resume_adaptation({choices.run_dir}, chosen, listener, **found));
  return found;
}

control::Replan make_replan(const control::ChosenPlan& chosen, control::PlanChoices choices,
                            const control::Adaptation& adaptation) {
  if (!adaptation.batch) return control::make_replanner(chosen, std::move(choices));
  choices.planner = "split";
  const std::int64_t times = chosen.planned.plan.replicas.front().micro_batches;
  choices.micro_batches = times > 1 ? times : 0;
  return control::replan_batch(chosen, adaptation,
                               control::make_replanner(chosen, std::move(choices)));
}

Result<void> make_elastic(const RunOptions& options, const control::TrainChoices& train,
                          control::ChosenPlan& chosen,
                          const std::optional<control::Predicted>& predicted,
                          const Context& context, bool has_joiners,
                          std::shared_ptr<control::Adaptation>& adaptation) {
  if (is_launched(context))
    return usage_error("cli.elastic",
                       "--elastic: a launcher ends all ranks when one is lost; start the run "
                       "without it: motley starts its processes itself, on other hosts by ssh");
  if (!adaptation) {
    adaptation = std::make_shared<control::Adaptation>();
    control::Candidate first{control::describe_plan(chosen.planned.plan, chosen.inputs.cluster),
                             chosen.planned};
    first.predicted = predicted;
    adaptation->candidates.push_back(std::move(first));
  }
  MOTLEY_ASSIGN(control::PlanChoices choices, make_plan_choices(options.plan.planning, context));
  adaptation->replan = make_replan(chosen, std::move(choices), *adaptation);
  adaptation->spare = chosen.inputs.devices;
  adaptation->survive = chosen.inputs.survive;
  adaptation->plans_ahead = adaptation->split == nullptr && adaptation->batch == nullptr;
  const auto survives = [&](const control::Planned& planned) {
    return adaptation->survive == 0 ||
           control::outlives_losses(chosen.inputs, planned, adaptation->survive).value_or(false);
  };
  if (adaptation->first == 0)
    std::erase_if(adaptation->candidates, [&](const control::Candidate& each) {
      return &each != &adaptation->candidates.front() && !survives(each.planned);
    });
  adaptation->port = options.port;
  adaptation->version = version();
  MOTLEY_ASSIGN(const auto prices, make_price_choices(options.plan.planning, context));
  control::let_grow(chosen, prices.profiles, train.enforce, *context.workers, *adaptation);
  const bool has_more = has_joiners && adaptation->policy == nullptr;
  if (options.absent.empty() && survives(chosen.planned) && !has_more) return {};
  std::vector<DeviceId> present = chosen.inputs.devices;
  for (const std::string& name : options.absent) {
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(chosen.inputs.cluster, name));
    std::erase(present, id);
  }
  if (present.empty())
    return usage_error("cli.elastic", "--absent: none of the devices is left to begin with");
  const control::Candidate& planned =
      adaptation->candidates[static_cast<std::size_t>(adaptation->first)];
  const control::BatchNow batch{planned.planned.plan.global_batch, planned.lr_factor};
  MOTLEY_ASSIGN(control::Candidate first, adaptation->replan(present, batch));
  MOTLEY_RETURN_IF_ERROR(control::lower_candidate(chosen.inputs, *adaptation, first));
  adaptation->candidates = {std::move(first)};
  adaptation->first = 0;
  adaptation->absent = options.absent;
  return {};
}

/// Takes the first plan from decisions. Adaptive splits need plans that split the batch.
Result<void> take_first_plan(RunOptions& options) {
  std::string& planner = options.plan.planning.planner;
  const bool learns = options.adapt == "split" || options.adapt == "batch";
  if (learns && options.plan.file.empty() && planner == "auto") planner = "split";
  if (options.decisions.empty()) return {};
  if (!options.plan.file.empty())
    return usage_error("cli.decisions",
                       "--decisions has plans of its own, --plan is another: give one of the two");
  MOTLEY_ASSIGN(const auto decisions, control::read_decisions(options.decisions));
  if (decisions.empty())
    return usage_error("decisions.none", options.decisions + ": has no decision");
  const std::string& run_dir = options.training.run_dir;
  std::error_code code;
  std::filesystem::create_directories(run_dir, code);
  options.plan.file = run_dir + "/first_plan.json";
  return write_file_atomic(options.plan.file, decisions[0].plan);
}

/// Takes over a lost coordinator's training: this host's copy replaces the files.
Result<std::optional<control::TakeoverInputs>> take_over(RunOptions& options,
                                                         const Context& context) {
  if (options.take_over.empty()) return std::nullopt;
  MOTLEY_ASSIGN(const run::TakeoverState inherited, context.workers->take_over(options.take_over));
  MOTLEY_ASSIGN(control::TakeoverInputs found, control::open_takeover(inherited));
  options.training.run_dir = found.run_dir;
  options.plan.file = found.plan;
  options.plan.cluster = found.cluster;
  if (!found.profiles.empty()) options.plan.planning.profiles = found.profiles;
  options.plan.planning.model = found.job.model_path;
  options.plan.planning.micro_batches = 0;
  options.plan.planning.stages.clear();
  options.training.data = found.job.data;
  if (found.job.evaluation) options.eval_data = found.job.evaluation->data.path;
  options.training.steps = found.job.steps;
  options.training.epochs = 0;
  options.training.resume = true;
  options.decisions.clear();
  options.conditions.clear();
  options.absent.clear();
  options.serve.reset();  // viewers were on the coordinator's machine
  if (found.market.empty()) options.rent = {};
  options.rent.market.market = found.market;
  if (options.adapt != "split" && options.adapt != "batch") options.adapt = "none";
  return found;
}

std::int64_t first_batch(const std::optional<control::TakeoverInputs>& continued) {
  return continued && continued->job.batches ? continued->job.batches->first : 0;
}

/// Continues a lost coordinator's numbering, and prepares the state for the next standby.
Result<void> go_on(const std::optional<control::TakeoverInputs>& found,
                   const control::ChosenPlan& chosen, const RunOptions& options,
                   const Context& context, control::TrainChoices& choices,
                   control::Adaptation& adaptation) {
  if (!found) {
    if (control::are_all_here(chosen.inputs.cluster, chosen.inputs.devices)) return {};
    MOTLEY_ASSIGN(const auto prices, make_price_choices(options.plan.planning, context));
    MOTLEY_ASSIGN(adaptation.standby_state,
                  control::make_standby_state(context.arguments, choices.run_dir, prices.profiles));
    return {};
  }
  adaptation.standby_state = found->standby_state;
  adaptation.joiners = found->joiners;
  adaptation.taken_over = found->known;
  adaptation.absent = found->absent;
  choices.data = found->job.data;
  choices.schedule = found->job.schedule;
  if (choices.evaluation) choices.evaluation->data = found->job.evaluation->data;
  adaptation.bring_checkpoint = [&workers = *context.workers, run_dir = choices.run_dir] {
    return workers.bring_left_checkpoint(run_dir);
  };
  return {};
}

/// Checks before measuring that the market has the machines to rent.
Result<std::optional<control::RentChoices>> find_renting(const RunOptions& options) {
  MOTLEY_ASSIGN(auto renting, make_rent_choices(options.rent, options.elastic ? Lives::kElastic
                                                                              : Lives::kAsPlanned));
  const PlanningOptions& planning = options.plan.planning;
  if (!renting || planning.cluster.empty() || options.plan.cluster) return renting;
  MOTLEY_ASSIGN(const elastic::Market market, elastic::read_market(renting->market));
  MOTLEY_ASSIGN(const cluster::Cluster cluster, cluster::read_cluster(planning.cluster));
  std::vector<DeviceId> devices = cluster::all_devices(cluster);
  std::erase_if(devices, [&](DeviceId device) {
    const auto& excluded = planning.exclude;
    return std::find(excluded.begin(), excluded.end(), cluster.device(device).name) !=
           excluded.end();
  });
  MOTLEY_RETURN_IF_ERROR(control::find_machines(market, cluster, devices, options.absent));
  return renting;
}

/// Chooses the checkpoint interval from the machines' hazard, unless one is given.
Result<void> prepare_to_rent(const control::ChosenPlan& chosen,
                             const control::Adaptation& adaptation,
                             const std::optional<control::Predicted>& predicted,
                             control::Listener& listener, control::TrainChoices& choices) {
  MOTLEY_ASSIGN(const control::MarketQuestion question,
                control::read_market_question(choices.renting->market));
  MOTLEY_ASSIGN(const auto machines,
                control::find_machines(question.market, chosen.inputs.cluster,
                                       chosen.inputs.devices, adaptation.absent));
  choices.renting->speed = control::speed_by_prices(chosen, machines);
  if (choices.checkpoint_every > 0 || !predicted) return {};
  const Bytes state = control::state_bytes(chosen.inputs.graph(), chosen.inputs.lowering.recipe);
  const auto steps =
      control::steps_between_checkpoints(question, machines, predicted->seconds(), state);
  if (!steps || *steps >= choices.steps) return {};
  choices.checkpoint_every = *steps;
  listener.note(
      fmt::format("a checkpoint each {} steps, as the machines' hazard says "
                  "(--checkpoint-every)",
                  *steps));
  return {};
}

Result<std::vector<std::string>> earlier_joiners(const RunOptions& options) {
  if (!options.elastic || !options.take_over.empty() || !options.training.resume)
    return std::vector<std::string>();
  return control::read_joiners(control::RunDirectory{options.training.run_dir}.joiners());
}

/// Chooses a plan, and adds devices that joined an earlier call.
Result<std::unique_ptr<control::ChosenPlan>> choose_with(const std::vector<std::string>& joiners,
                                                         const RunOptions& options,
                                                         const control::TrainChoices& choices,
                                                         const Context& context,
                                                         ProgressPrinter& printer) {
  MOTLEY_ASSIGN(auto chosen, choose_plan(options.plan, control::Prices::kIfThere, context));
  if (chosen->outcome)
    printer.note(report::print_outcome(*chosen->outcome, chosen->inputs.cluster));
  if (joiners.empty()) return chosen;
  MOTLEY_ASSIGN(const auto prices, make_price_choices(options.plan.planning, context));
  MOTLEY_RETURN_IF_ERROR(
      control::take_earlier(*chosen, joiners, prices.profiles, choices.enforce, printer.outside()));
  return chosen;
}

Result<simulate::Conditions> read_conditions(const RunOptions& options) {
  if (options.conditions.empty()) return simulate::Conditions();
  MOTLEY_ASSIGN(const std::string text, read_file(options.conditions));
  return simulate::parse_conditions(text, options.conditions);
}

Result<control::Measured> train_and_show(const control::PreparedRun& prepared,
                                         const RunOptions& options, const Context& context) {
  std::unique_ptr<control::LivePage> page;
  if (options.serve) {
    MOTLEY_ASSIGN(page, control::LivePage::start(prepared.directory.path, *options.serve));
    context.note("the run is shown at " + page->address());
  }
  return train(prepared, context);
}

Result<int> run_plan(const RunOptions& given, const Context& context) {
  RunOptions options = given;
  MOTLEY_ASSIGN(const auto continued, take_over(options, context));
  std::string& run_dir = options.training.run_dir;
  if (run_dir.empty()) run_dir = default_run_dir(options.plan.planning.model);
  MOTLEY_RETURN_IF_ERROR(control::check_not_in_use({std::filesystem::absolute(run_dir).string()}));
  options.plan.commits = options.elastic;
  // Their models of a step end with its exchanges.
  options.plan.carries = options.adapt != "split" && options.adapt != "batch";
  if (options.plan.planning.survive != 0 && !options.elastic)
    return usage_error("cli.elastic",
                       "--survive: a run outlives the loss of devices with --elastic; add it");
  MOTLEY_ASSIGN(const std::vector<std::string> earlier, earlier_joiners(options));
  MOTLEY_RETURN_IF_ERROR(take_first_plan(options));
  MOTLEY_ASSIGN(control::TrainChoices choices,
                make_train_choices(options, find_python(options.python, context)));
  if (!choices.data.path.empty())
    MOTLEY_RETURN_IF_ERROR(data::check_readable(choices.data));  // before anything is measured
  choices.arguments = context.arguments;
  MOTLEY_ASSIGN(choices.renting, find_renting(options));
  MOTLEY_ASSIGN(choices.conditions, read_conditions(options));
  ProgressPrinter printer(context);
  MOTLEY_ASSIGN(const auto chosen, choose_with(earlier, options, choices, context, printer));
  MOTLEY_ASSIGN(auto predicted, control::find_prediction(*chosen, 3, printer));
  MOTLEY_ASSIGN(auto adaptation, find_adaptation(options, choices, *chosen, predicted,
                                                 first_batch(continued), context, printer));
  if (options.elastic) {
    MOTLEY_RETURN_IF_ERROR(
        make_elastic(options, choices, *chosen, predicted, context, !earlier.empty(), adaptation));
    adaptation->joiners = earlier;
    MOTLEY_RETURN_IF_ERROR(go_on(continued, *chosen, options, context, choices, *adaptation));
  }
  if (choices.renting)
    MOTLEY_RETURN_IF_ERROR(prepare_to_rent(*chosen, *adaptation, predicted, printer, choices));
  // Continued or repeated decisions may begin with another plan.
  const control::Planned* planned = &chosen->planned;
  if (adaptation) {
    const auto first = static_cast<std::size_t>(adaptation->first);
    planned = &adaptation->candidates[first].planned;
    predicted = adaptation->candidates[first].predicted;
  }
  MOTLEY_ASSIGN(const control::PreparedRun prepared,
                control::prepare_run(chosen->inputs, *planned, predicted ? &*predicted : nullptr,
                                     choices, adaptation));
  if (options.prepare) {
    context.result("prepared   " + prepared.directory.path + "\n",
                   Json{{"run_dir", prepared.directory.path}, {"job", prepared.directory.job()}});
    return kDone;
  }
  MOTLEY_ASSIGN(const control::Measured measured, train_and_show(prepared, options, context));
  if (measured.candidate >= 0)
    predicted = adaptation->candidates[static_cast<std::size_t>(measured.candidate)].predicted;
  if (predicted && choices.enforce == control::Enforce::kSpeedsAndLinks && !measured.stopped &&
      !measured.waiting.is_noticed() && choices.conditions.slow_downs.empty()) {
    MOTLEY_ASSIGN(const auto prices, make_price_choices(options.plan.planning, context));
    if (const auto kept = keep_error(prepared, *predicted, measured, prices.profiles); !kept)
      context.note("warning: the prediction's error is not kept: " + kept.error().message);
  }
  context.result(summary_text(measured, prepared), control::summary_to_json(measured, prepared));
  return measured.stopped ? kStopped : kDone;
}

/// With --stop-after synth the result is in the run directory.
Result<int> run_as_asked(const RunOptions& options, const Context& context) {
  if (context.stop_after != control::phase_name(control::Phase::kSynth))
    return run_plan(options, context);
  RunOptions preparing = options;
  preparing.prepare = true;
  Context whole = context;
  whole.stop_after.clear();
  return run_plan(preparing, whole);
}

}  // namespace

Verb run_verb() { return led(make_verb("run", "train a model", run_flags, run_as_asked)); }

}  // namespace motley::cli
