#include "motley/cli/options/market_options.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cli/context/progress_printer.h"
#include "motley/control/planning/market.h"

namespace motley::cli {
namespace {

constexpr const char* kRentGroup = "Rented machines";

using elastic::PricedMix;
using elastic::print_duration;

/// Returns "4 v100-16g spot us-west1-b + 1 v100-16g on demand us-west1-b".
std::string print_machines(const elastic::Market& market, const elastic::Mix& mix) {
  std::vector<std::string> parts;
  for (std::size_t o = 0; o < mix.machines.size(); ++o)
    if (mix.machines[o] > 0)
      parts.push_back(fmt::format("{} {}", mix.machines[o], elastic::name_of(market.offers[o])));
  if (mix.servers > 0)
    parts.push_back(fmt::format("{} server{}", mix.servers, mix.servers == 1 ? "" : "s"));
  return join(parts, " + ");
}

Json mix_to_json(const elastic::Market& market, const PricedMix& mix) {
  Json machines = Json::array();
  for (std::size_t o = 0; o < mix.mix.machines.size(); ++o) {
    if (mix.mix.machines[o] == 0) continue;
    const elastic::Offer& offer = market.offers[o];
    machines.push_back({{"kind", offer.kind},
                        {"zone", offer.zone},
                        {"spot", offer.is_spot},
                        {"count", mix.mix.machines[o]}});
  }
  Json json{{"machines", std::move(machines)}};
  if (market.server) json["servers"] = mix.mix.servers;
  json["step_s"] = mix.step.value;
  json["time_s"] = mix.time.value;
  json["time_p90_s"] = mix.slow.value;
  json["cost"] = mix.cost;
  json["late"] = mix.late;
  json["save_every_s"] =
      std::isfinite(mix.save_every.value) ? Json(mix.save_every.value) : Json(nullptr);
  return json;
}

Json to_json(const elastic::Market& market, const control::MarketAnswer& answer) {
  Json list = Json::array();
  for (const PricedMix& mix : answer.pareto) list.push_back(mix_to_json(market, mix));
  return {{"market", std::move(list)},
          {"chosen",
           answer.chosen ? mix_to_json(market, answer.pareto[*answer.chosen]) : Json(nullptr)},
          {"mixes", answer.mixes},
          {"clusters", answer.clusters},
          {"why", answer.why}};
}

std::string print_market_answer(const elastic::Market& market, const elastic::Wanted& wanted,
                                const control::MarketAnswer& answer) {
  std::string text = fmt::format("  {:>9} {:>9} {:>9} {:>6} {:>10}  {}\n", "cost", "time",
                                 "9 of 10", "late", "save every", "machines");
  for (std::size_t i = 0; i < answer.pareto.size(); ++i) {
    const PricedMix& mix = answer.pareto[i];
    text +=
        fmt::format("{} {:>9.2f} {:>9} {:>9} {:>6} {:>10}  {}\n", answer.chosen == i ? "*" : " ",
                    mix.cost, print_duration(mix.time), print_duration(mix.slow),
                    wanted.deadline ? fmt::format("{:.0f} %", 100 * mix.late) : "-",
                    std::isfinite(mix.save_every.value) ? print_duration(mix.save_every) : "never",
                    print_machines(market, mix.mix));
  }
  text += answer.chosen ? fmt::format("\nrent {}\n",
                                      print_machines(market, answer.pareto[*answer.chosen].mix))
                        : "\nno mix of machines fits\n";
  for (const std::string& line : answer.why) text += line + "\n";
  return text +
         fmt::format("Pareto-optimal of {} mixes (cost, time, chance of missing the deadline)\n",
                     answer.mixes);
}

Result<void> check_budget(const MarketOptions& options) {
  if (!options.budget || *options.budget > 0) return {};
  return usage_error("cli.budget",
                     fmt::format("--budget: found {}, wanted more than 0", *options.budget));
}

Result<control::MarketQuestion> make_market_question(const MarketOptions& options,
                                                     const PlanningOptions& planning) {
  if (!planning.cluster.empty())
    return usage_error("cli.market", "--market says which devices there are; leave -C out");
  if (options.steps < 1)
    return usage_error("cli.steps", "--market: how long is the training? give --steps N");
  MOTLEY_RETURN_IF_ERROR(check_budget(options));
  MOTLEY_ASSIGN(control::MarketQuestion question, control::read_market_question(options.market));
  question.steps = static_cast<double>(options.steps);
  question.wanted.budget = options.budget;
  question.seed = planning.seed;
  if (options.deadline.empty()) return question;
  const auto deadline = parse_seconds(options.deadline);
  if (!deadline) return with_context("--deadline", deadline.error());
  question.wanted.deadline = *deadline;
  return question;
}

}  // namespace

std::vector<Flag> market_flags(MarketOptions& options) {
  std::vector<Flag> flags = {
      {"--market", &options.market, "market file (TOML): find which machines to rent for --steps"},
      {"--deadline", &options.deadline, "time until the training must be done: 8h, 90min"},
      {"--budget", &options.budget, "largest cost, in the market's currency"},
      {"--steps", &options.steps, "steps of the training"}};
  for (Flag& flag : flags) flag.group = "Rented machines, in place of -C";
  return flags;
}

std::vector<Flag> simulated_rent_flags(RentOptions& options) {
  std::vector<Flag> flags = {
      {"--market", &options.market.market,
       "with --elastic, or --adapt of simulate: market file (docs/formats/market.md); each node "
       "with a zone is one of its machines; what to rent is decided again after each loss, notice, "
       "arrival and price"},
      {"--deadline", &options.market.deadline,
       "with --market: time from the start until the run must be done: 8h, 90min"},
      {"--budget", &options.market.budget, "with --market: largest cost, in the market's currency"},
      {"--rent-policy", &options.policy,
       "with --market: " + join(elastic::renting_rules(), ", ") +
           ": what is asked for where the deadline forces nothing",
       kShown}};
  for (Flag& flag : flags) flag.group = kRentGroup;
  return flags;
}

std::vector<Flag> rent_flags(RentOptions& options) {
  std::vector<Flag> flags = simulated_rent_flags(options);
  flags.push_back({"--rent-hook", &options.hook,
                   "with --market: command that requests a machine, which then joins "
                   "(MOTLEY_RENT_* describe it)"});
  flags.push_back({"--return-hook", &options.return_hook,
                   "with --market: command that returns a machine that has left the run (default: "
                   "return none before the end)"});
  for (Flag& flag : flags) flag.group = kRentGroup;
  return flags;
}

Result<std::optional<control::RentChoices>> make_rent_choices(const RentOptions& options,
                                                              Lives lives) {
  const MarketOptions& market = options.market;
  if (!market.is_given()) {
    if (market.deadline.empty() && !market.budget && options.hook.empty() &&
        options.return_hook.empty() && options.policy == RentOptions().policy)
      return std::nullopt;
    return usage_error("cli.market",
                       "--deadline, --budget, --rent-policy and hooks say how to rent machines: "
                       "give --market");
  }
  if (lives == Lives::kAsPlanned)
    return usage_error("cli.market",
                       "--market: rented machines go and come while the run trains: add --elastic");
  if (market.deadline.empty())
    return usage_error("cli.deadline",
                       "--market: until when must it be done? give --deadline, such as 8h");
  MOTLEY_RETURN_IF_ERROR(check_budget(market));
  control::RentChoices choices{.market = market.market, .budget = market.budget};
  MOTLEY_ASSIGN(choices.rule, elastic::find_renting_rule(options.policy));
  choices.hook = options.hook;
  choices.return_hook = options.return_hook;
  choices.gives_back = lives == Lives::kSimulated || !options.return_hook.empty();
  const auto deadline = parse_seconds(market.deadline);
  if (!deadline) return with_context("--deadline", deadline.error());
  if (!(deadline->value > 0))
    return usage_error("cli.deadline", "--deadline: found " + market.deadline +
                                           ", wanted a time after the run's beginning");
  choices.deadline = *deadline;
  return std::optional(std::move(choices));
}

Result<int> plan_to_rent(const MarketOptions& options, const PlanningOptions& planning,
                         const Context& context) {
  ProgressPrinter printer(context);
  MOTLEY_ASSIGN(const control::MarketQuestion asked, make_market_question(options, planning));
  const control::Outside outside = printer.outside();
  std::optional<control::MarketJob> job;
  if (!asked.market.server) {
    MOTLEY_ASSIGN(const control::PlanChoices choices, make_plan_choices(planning, context));
    PlanningOptions on_any = planning;
    on_any.cluster = options.market;  // each mix is its own cluster
    MOTLEY_ASSIGN(const control::Question question, make_question(on_any, GlobalBatch::kGiven));
    if (planning.layers.is_given() && planning.planner == "stages") {
      job = control::layer_stages_job(planning.layers, planning.global_batch, *context.clock);
    } else {
      MOTLEY_ASSIGN(job, control::model_job(question, choices, outside));
    }
  }
  MOTLEY_ASSIGN(const control::MarketAnswer answer,
                control::plan_market(asked, job ? &*job : nullptr));
  context.result(print_market_answer(asked.market, asked.wanted, answer),
                 to_json(asked.market, answer));
  return answer.chosen ? kDone : kInfeasible;
}

}  // namespace motley::cli
