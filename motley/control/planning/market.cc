#include "motley/control/planning/market.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/cluster/kinds.h"
#include "motley/elastic/server_queue.h"
#include "motley/plan/recipe.h"

namespace motley::control {
namespace {

using elastic::Mix;
using elastic::Offer;

/// Numbers each offer by the first offer with the same machines, whatever their price and zone.
std::vector<std::size_t> machine_types(const elastic::Market& market) {
  std::vector<std::size_t> types;
  const auto key = [](const Offer& offer) {
    return std::tuple(offer.kind, offer.devices, offer.memory, offer.threads, offer.speed);
  };
  for (const Offer& offer : market.offers) {
    std::size_t first = 0;
    while (key(market.offers[first]) != key(offer)) ++first;
    types.push_back(first);
  }
  return types;
}

/// Returns the mix with all machines as the first offer of their type.
Mix by_type(const Mix& mix, const std::vector<std::size_t>& types) {
  Mix sum{std::vector<int>(mix.machines.size(), 0), mix.servers};
  for (std::size_t o = 0; o < types.size(); ++o) sum.machines[types[o]] += mix.machines[o];
  return sum;
}

bool is_empty(const Mix& mix) {
  return std::all_of(mix.machines.begin(), mix.machines.end(),
                     [](int machines) { return machines == 0; });
}

/// Returns steps per second of asynchronous workers with their servers.
Result<double> served_speed(const elastic::Market& market, const Mix& mix) {
  std::vector<elastic::AsyncWorkers> workers;
  for (std::size_t o = 0; o < mix.machines.size(); ++o)
    if (mix.machines[o] > 0) workers.push_back({mix.machines[o], *market.offers[o].step});
  MOTLEY_ASSIGN(const elastic::ClusterSpeed speed,
                elastic::estimate_cluster_speed(workers, market.server->service, mix.servers));
  return speed.steps_per_second;
}

using Speeds = std::map<std::pair<std::vector<int>, int>, double>;

std::pair<std::vector<int>, int> key_of(const Mix& mix, const std::vector<std::size_t>& types) {
  return {by_type(mix, types).machines, mix.servers};
}

/// Returns the speed of every mix. A mix without some of its machines is also a mix.
Result<Speeds> find_speeds(const elastic::Market& market, const std::vector<Mix>& mixes,
                           const std::vector<std::size_t>& types, const MarketJob* job,
                           std::size_t& clusters) {
  std::map<std::pair<std::vector<int>, int>, Mix> wanted;
  for (const Mix& mix : mixes) wanted.emplace(key_of(mix, types), by_type(mix, types));
  if (!market.server && wanted.size() > kMostClusters)
    return usage_error("market.clusters",
                       fmt::format("{} sets of machines to plan for, wanted at most {}; give "
                                   "offers a smaller 'most', or leave some out",
                                   wanted.size(), kMostClusters));
  Speeds speeds;
  for (const auto& [key, mix] : wanted) {
    if (market.server) {
      MOTLEY_ASSIGN(speeds[key], served_speed(market, mix));
      continue;
    }
    MOTLEY_ASSIGN(const std::optional<Seconds> step, job->step(rented_cluster(market, mix)));
    ++clusters;
    speeds[key] = step && step->value > 0 ? 1 / step->value : 0;
  }
  return speeds;
}

void explain_servers(const MarketQuestion& question, const Mix& chosen, MarketAnswer& answer) {
  const elastic::Market& market = question.market;
  const auto now = served_speed(market, chosen);
  double sum = 0;
  for (std::size_t o = 0; o < chosen.machines.size(); ++o)
    sum += chosen.machines[o] / market.offers[o].step->value;
  if (!now) return;
  answer.why.push_back(
      fmt::format("workers do {:.3g} steps/s, {:.0f} % of the sum of each alone with one server",
                  *now, 100 * *now / sum));
  const auto say = [&](const Mix& more, const std::string& what) {
    if (const auto then = served_speed(market, more))
      answer.why.push_back(
          fmt::format("one more {} would bring {:+.1f} %", what, 100 * (*then / *now - 1)));
  };
  for (std::size_t o = 0; o < chosen.machines.size(); ++o) {
    if (chosen.machines[o] == 0) continue;
    Mix more = chosen;
    ++more.machines[o];
    say(more, elastic::name_of(market.offers[o]));
  }
  Mix more = chosen;
  ++more.servers;
  say(more, "server");
}

void explain_none(const elastic::Wanted& wanted, MarketAnswer& answer) {
  if (answer.pareto.empty()) {
    answer.why.push_back("the training fits on none of the mixes");
    return;
  }
  const auto& mixes = answer.pareto;
  const auto fastest = std::min_element(
      mixes.begin(), mixes.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  answer.why.push_back(fmt::format("the fastest mix takes {}, the cheapest costs {:.2f}",
                                   format_seconds(fastest->time), mixes.front().cost));
  if (wanted.deadline && wanted.budget)
    answer.why.push_back("none is in time often enough within the budget");
}

}  // namespace

cluster::Cluster rented_cluster(const elastic::Market& market, const Mix& mix) {
  cluster::Cluster made;
  made.name = market.name;
  for (std::size_t o = 0; o < mix.machines.size(); ++o)
    for (int i = 0; i < mix.machines[o]; ++i) {
      const Offer& offer = market.offers[o];
      const NodeId node(static_cast<std::int64_t>(made.nodes.size()));
      made.nodes.push_back({.name = fmt::format("m{}", node.index())});
      std::optional<Bytes> memory = offer.memory;
      if (const auto kind = cluster::find_kind(offer.kind); !memory && kind) memory = kind->memory;
      for (int d = 0; d < offer.devices; ++d)
        made.devices.push_back({.node = node,
                                .name = fmt::format("m{}:{}", node.index(), d),
                                .kind = offer.kind,
                                .index = d,
                                .local_index = d,
                                .threads = offer.threads,
                                .speed = offer.speed,
                                .memory = memory});
    }
  made.links.push_back({.bandwidth = market.bandwidth, .latency = market.latency});
  return made;
}

Bytes state_bytes(const graph::Graph& graph, const plan::Recipe& recipe) {
  Bytes state(0);
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kParameter)) {
    const graph::Value& value = graph.value(id);
    const std::int64_t bytes = graph::value_bytes(value, {});
    const auto states = plan::find_states(plan::optimizer_of(recipe, value), value.shape.size());
    state += Bytes(bytes * static_cast<std::int64_t>(1 + states.size()));
  }
  return state;
}

Result<MarketJob> model_job(const Question& question, const PlanChoices& choices,
                            const Outside& outside) {
  const auto silent = std::make_shared<SilentListener>();
  Question any = question;
  any.programs = std::make_shared<search::EqualPrograms>();
  MarketJob job;
  if (!question.layers) {
    MOTLEY_ASSIGN(graph::Model model, graph::read_model(question.model));
    job.state = state_bytes(model.graph, question.lowering.recipe);
    any.read = std::make_shared<const graph::Model>(std::move(model));
  }
  job.step = [question = std::move(any), choices, &outside,
              silent](const cluster::Cluster& machines) -> Result<std::optional<Seconds>> {
    Question on_these = question;
    on_these.made = machines;
    const Outside quiet{outside.workers, outside.clock, *silent};
    MOTLEY_ASSIGN(Inputs inputs, read_inputs(on_these, *silent));
    MOTLEY_ASSIGN(const Answer answer, find_plan(inputs, choices, quiet));
    if (!answer.outcome.plan) return std::nullopt;
    return answer.outcome.predicted_step;
  };
  return job;
}

MarketJob layer_stages_job(const LayerFiles& files, std::int64_t global_batch, const Clock& clock) {
  MarketJob job;
  job.step = [files, global_batch,
              &clock](const cluster::Cluster& machines) -> Result<std::optional<Seconds>> {
    MOTLEY_ASSIGN(const StageAnswer answer, plan_stages(files, machines, global_batch, clock));
    if (!answer.outcome.best) return std::nullopt;
    return answer.outcome.best->price.step;
  };
  return job;
}

Result<MarketAnswer> plan_market(const MarketQuestion& question, const MarketJob* job) {
  const elastic::Market& market = question.market;
  if (!market.server && job == nullptr)
    return usage_error("market.job", "which training? a market without [server] wants a model");
  MarketAnswer answer;
  MOTLEY_ASSIGN(const std::vector<Mix> mixes, elastic::find_mixes(market));
  answer.mixes = mixes.size();
  std::vector<std::size_t> types = machine_types(market);
  if (market.server)
    for (std::size_t o = 0; o < types.size(); ++o) types[o] = o;
  MOTLEY_ASSIGN(const Speeds speeds, find_speeds(market, mixes, types, job, answer.clusters));
  const elastic::MixSpeed speed = [&](const Mix& mix) {
    if (is_empty(mix)) return 0.0;
    const auto found = speeds.find(key_of(mix, types));
    return found == speeds.end() ? 0.0 : found->second;
  };
  Seconds last;
  for (const auto& [name, machine] : question.lifetimes.machines())
    last = std::max(last, machine.end.value_or(machine.start));
  const elastic::LifetimeForecast forecast = question.lifetimes.forecast(last);
  elastic::MixJob priced{.steps = question.steps, .deadline = question.wanted.deadline};
  priced.save = elastic::checkpoint_time(market, job == nullptr ? Bytes(0) : job->state);
  priced.seed = question.seed;
  std::vector<elastic::PricedMix> all;
  for (const Mix& mix : mixes)
    if (auto found = elastic::price_mix(market, mix, forecast, speed, priced))
      all.push_back(std::move(*found));
  answer.pareto = elastic::find_pareto(std::move(all));
  answer.chosen = elastic::choose_mix(answer.pareto, question.wanted);
  if (!answer.chosen) explain_none(question.wanted, answer);
  if (answer.chosen && market.server)
    explain_servers(question, answer.pareto[*answer.chosen].mix, answer);
  return answer;
}

Result<MarketQuestion> read_market_question(const std::string& path) {
  MarketQuestion question;
  MOTLEY_ASSIGN(question.market, elastic::read_market(path));
  if (question.market.lifetimes.empty()) return question;
  const std::string file =
      (std::filesystem::path(path).parent_path() / question.market.lifetimes).string();
  MOTLEY_ASSIGN(const std::string text, read_file(file));
  MOTLEY_ASSIGN(const Json json, parse_json(text, file));
  MOTLEY_ASSIGN(question.lifetimes, elastic::Lifetimes::from_json(json, file));
  return question;
}

}  // namespace motley::control
