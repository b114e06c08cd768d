#include "motley/report/plan_export.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/text.h"
#include "motley/graph/layer_chain.h"

namespace motley::report {
namespace {

tl::unexpected<Error> refuse(const std::string& what) { return usage_error("plan.export", what); }

/// The layers [first, end) of each stage, of a replica that is a pipeline over the chain.
using StageLayers = std::vector<std::pair<std::size_t, std::size_t>>;

Result<StageLayers> find_stage_layers(const plan::Replica& replica,
                                      const graph::LayerChain& chain) {
  const std::size_t layers = chain.names.size();
  std::vector<std::size_t> region_of(layers, replica.regions.size());
  for (std::size_t g = 0; g < replica.regions.size(); ++g) {
    std::vector<plan::OpRange> covers = replica.regions[g].covers;
    if (covers.empty()) covers = {{0, static_cast<std::int64_t>(chain.of_op.size())}};
    for (const plan::OpRange& range : covers)
      for (std::int64_t op = range.first; op < range.end; ++op) {
        std::size_t& region = region_of[chain.of_op[static_cast<std::size_t>(op)]];
        if (region != replica.regions.size() && region != g)
          return refuse(
              fmt::format("layer {} is in regions {} and {}: only stages of whole layers "
                          "can be said elsewhere",
                          chain.names[chain.of_op[static_cast<std::size_t>(op)]], region, g));
        region = g;
      }
  }
  StageLayers stages;
  for (std::size_t l = 0; l < layers; ++l) {
    if (stages.empty() || region_of[l] != region_of[l - 1]) {
      if (region_of[l] != stages.size())
        return refuse(fmt::format("layer {} is in region {}, which is not the next stage",
                                  chain.names[l], region_of[l]));
      stages.emplace_back(l, l);
    }
    stages.back().second = l + 1;
  }
  return stages;
}

/// Returns the first replica's stages. Refuses replicas with different cuts.
Result<StageLayers> find_common_stages(const plan::Plan& plan, const graph::Graph& graph,
                                       const graph::LayerChain& chain) {
  (void)graph;
  MOTLEY_ASSIGN(StageLayers stages, find_stage_layers(plan.replicas.front(), chain));
  for (std::size_t r = 1; r < plan.replicas.size(); ++r) {
    MOTLEY_ASSIGN(const StageLayers other, find_stage_layers(plan.replicas[r], chain));
    if (other != stages)
      return refuse(
          fmt::format("replica {} is cut into other stages than replica 0; this tool cuts "
                      "all alike",
                      r));
  }
  return stages;
}

/// Lists the parts of the plan that the settings omit.
std::vector<std::string> find_notes(const plan::Plan& plan) {
  std::vector<std::string> notes;
  for (std::size_t r = 1; r < plan.replicas.size(); ++r)
    if (plan.replicas[r].samples != plan.replicas[0].samples ||
        plan.replicas[r].micro_batches != plan.replicas[0].micro_batches) {
      notes.push_back(
          fmt::format("replicas have unequal samples or micro-batches (replica {}: {} "
                      "in {}); that tool gives all as many",
                      r, plan.replicas[r].samples, plan.replicas[r].micro_batches));
      break;
    }
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    for (std::size_t g = 0; g < plan.replicas[r].regions.size(); ++g)
      if (const auto operators = plan::count_operators(plan.replicas[r].regions[g].recomputes);
          operators > 0)
        notes.push_back(
            fmt::format("replica {}, region {} does {} operators of the forward pass again to fit; "
                        "ask that tool for activation checkpointing there",
                        r, g, operators));
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    for (std::size_t g = 0; g < plan.replicas[r].regions.size(); ++g) {
      const std::vector<plan::KeptParameter>& kept = plan.replicas[r].regions[g].parameters;
      const auto gathered = std::count_if(kept.begin(), kept.end(), [](const auto& parameter) {
        return parameter.is_gathered_again;
      });
      if (gathered > 0)
        notes.push_back(fmt::format(
            "replica {}, region {} gathers {} parameters again for each pass; ask that tool to "
            "reshard after the forward pass there",
            r, g, gathered));
    }
  return notes;
}

/// Returns the interleaved stages per rank, in rounds over the ranks: 0 1 0 1 is 2. Refuses others.
Result<std::size_t> find_turns(const plan::Plan& plan) {
  std::size_t turns = 1;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const std::vector<plan::Region>& regions = plan.replicas[r].regions;
    std::size_t ranks = 1;
    while (ranks < regions.size() && regions[ranks].devices != regions[0].devices) ++ranks;
    bool is_even = regions.size() % ranks == 0;
    for (std::size_t g = 0; g < regions.size(); ++g)
      for (std::size_t other = 0; other < g; ++other) {
        const bool is_same = regions[g].devices == regions[other].devices;
        is_even = is_even && is_same == (g % ranks == other % ranks);
      }
    if (!is_even)
      return refuse(fmt::format(
          "replica {}: devices have several stages, not round after round; this tool has no words "
          "for that",
          r));
    turns = regions.size() / ranks;
  }
  return turns;
}

std::int64_t micro_batch(const plan::Plan& plan) {
  return plan::find_stretches(plan.replicas.front(), 0).front().count;
}

/// Tells whether the last component of a path is a number.
bool is_repeated(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string last = dot == std::string::npos ? path : path.substr(dot + 1);
  return !last.empty() && std::all_of(last.begin(), last.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

Result<PlanSettings> to_megatron(const plan::Plan& plan, const graph::Graph& graph) {
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  MOTLEY_ASSIGN(const StageLayers stages, find_common_stages(plan, graph, chain));
  MOTLEY_ASSIGN(const std::size_t turns, find_turns(plan));
  const auto first = std::find_if(chain.names.begin(), chain.names.end(), is_repeated);
  if (first == chain.names.end())
    return refuse("the model has no repeated layers such as h.0, h.1");
  const auto at = [&](std::size_t l) {
    return chain.names.begin() + static_cast<std::ptrdiff_t>(l);
  };
  const auto last = std::find_if(chain.names.rbegin(), chain.names.rend(), is_repeated).base();
  std::vector<std::string> words;
  bool has_embedding = false, has_loss = false;
  for (const auto& [begin, end] : stages) {
    std::string word;
    for (std::size_t l = begin; l < end; ++l) {
      if (at(l) < first && !std::exchange(has_embedding, true)) word += "E";
      if (at(l) >= first && at(l) < last && is_repeated(chain.names[l])) word += "t";
      if (at(l) >= last && !std::exchange(has_loss, true)) word += "L";
    }
    words.push_back(word);
  }
  PlanSettings settings;
  settings.text = fmt::format(
      "--pipeline-model-parallel-size {} --pipeline-model-parallel-layout \"{}\" "
      "--micro-batch-size {} --global-batch-size {}\n",
      stages.size() / turns, fmt::join(words, "|"), micro_batch(plan), plan.global_batch);
  settings.notes = find_notes(plan);
  if (const auto ranks = static_cast<std::int64_t>(stages.size() / turns);
      turns > 1 && plan.replicas.front().micro_batches % ranks != 0)
    settings.notes.push_back(
        fmt::format("{} micro-batches; with virtual stages that tool wants a multiple of the {} "
                    "ranks of a pipeline",
                    plan.replicas.front().micro_batches, ranks));
  return settings;
}

Result<PlanSettings> to_torchtitan(const plan::Plan& plan, const graph::Graph& graph) {
  const graph::LayerChain chain = graph::find_layer_chain(graph);
  MOTLEY_ASSIGN(const StageLayers stages, find_common_stages(plan, graph, chain));
  MOTLEY_ASSIGN(const std::size_t turns, find_turns(plan));
  Json parts = Json::array();
  for (const auto& [begin, end] : stages) {
    Json part = Json::array();
    for (std::size_t l = begin; l < end; ++l) part.push_back(chain.names[l]);
    parts.push_back(std::move(part));
  }
  PlanSettings settings;
  settings.text = fmt::format(
      "[training]\nlocal_batch_size = {}\nglobal_batch_size = {}\n\n[parallelism]\n"
      "pipeline_parallel_degree = {}\n{}pipeline_parallel_microbatch_size = {}\n"
      "module_fqns_per_model_part = {}\n",
      plan.replicas.front().samples, plan.global_batch, stages.size() / turns,
      turns > 1 ? "pipeline_parallel_schedule = \"Interleaved1F1B\"\n" : "", micro_batch(plan),
      parts.dump());
  settings.notes = find_notes(plan);
  return settings;
}

/// Lists hosts with their number of devices, in the order of the plan's ranks.
std::vector<std::pair<std::string, int>> find_hosts(const plan::Plan& plan,
                                                    const cluster::Cluster& cluster) {
  std::vector<std::pair<std::string, int>> hosts;
  for (const plan::Member& member : plan::members(plan)) {
    const cluster::Node& node = cluster.nodes[cluster.device(member.device).node.index()];
    const std::string host = node.host.empty() ? node.name : node.host;
    const auto known = std::find_if(hosts.begin(), hosts.end(),
                                    [&](const auto& each) { return each.first == host; });
    if (known == hosts.end())
      hosts.emplace_back(host, 1);
    else
      ++known->second;
  }
  return hosts;
}

PlanSettings to_deepspeed(const plan::Plan& plan, const cluster::Cluster& cluster) {
  PlanSettings settings;
  for (const auto& [host, slots] : find_hosts(plan, cluster))
    settings.text += fmt::format("{} slots={}\n", host, slots);
  settings.text += fmt::format(
      "# {{\"train_batch_size\": {}, \"train_micro_batch_size_per_gpu\": {}, "
      "\"gradient_accumulation_steps\": {}}}\n",
      plan.global_batch, micro_batch(plan), plan.replicas.front().micro_batches);
  settings.notes = find_notes(plan);
  return settings;
}

PlanSettings to_torchrun(const plan::Plan& plan, const cluster::Cluster& cluster) {
  PlanSettings settings;
  const auto hosts = find_hosts(plan, cluster);
  for (std::size_t i = 0; i < hosts.size(); ++i)
    settings.text += fmt::format(
        "# on {}\ntorchrun --nnodes {} --node-rank {} --nproc-per-node {} --master-addr {} "
        "--master-port 29500 ...\n",
        hosts[i].first, hosts.size(), i, hosts[i].second, hosts[0].first);
  settings.notes = find_notes(plan);
  return settings;
}

}  // namespace

std::vector<std::string> plan_tools() {
  return {"megatron", "torchtitan", "deepspeed", "torchrun"};
}

Result<PlanSettings> export_plan(std::string_view tool, const plan::Plan& plan,
                                 const graph::Graph& graph, const cluster::Cluster& cluster) {
  if (tool == "megatron") return to_megatron(plan, graph);
  if (tool == "torchtitan") return to_torchtitan(plan, graph);
  if (tool == "deepspeed") return to_deepspeed(plan, cluster);
  if (tool == "torchrun") return to_torchrun(plan, cluster);
  const std::vector<std::string> tools = plan_tools();
  return refuse(fmt::format("--to: found '{}', wanted one of {}{}", tool, join(tools, " "),
                            suggestion_clause(std::string(tool), tools)));
}

}  // namespace motley::report
