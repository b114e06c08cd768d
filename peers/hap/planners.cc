#include "peers/hap/planners.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/text.h"
#include "peers/hap/program_summary.h"
#include "peers/hap/published_models.h"

namespace motley::peers {
namespace {

constexpr const char* kReleased = "hap-released";
constexpr const char* kDescribed = "hap-described";
constexpr std::int64_t kMostLayers = 1000;

/// A family of workloads by depth; `make` is null where the depth is fixed.
struct Family {
  std::string name;
  std::int64_t layers;
  ReferenceGraph (*make)(std::int64_t devices, std::int64_t layers);
};

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"bert", 12, make_bert},
      {"vit", 12, make_vit},
      {"vgg", 19, [](std::int64_t devices, std::int64_t) { return make_vgg19(devices); }},
      {"bert-moe", 12, make_bert_moe},
  };
  return kFamilies;
}

bool are_equal(const Shares& left, const Shares& right) {
  return std::equal(left.begin(), left.end(), right.begin(),
                    [](double a, double b) { return std::abs(a - b) <= 1e-12; });
}

std::string describe_shares(const Shares& shares, const HapCluster& cluster) {
  const Shares even(shares.size(), 1.0 / static_cast<double>(shares.size()));
  const Shares proportional = proportional_shares(cluster);
  if (are_equal(even, proportional)) return "even shares: the devices are identical";
  if (are_equal(shares, proportional)) return "shares in proportion to speed";
  if (are_equal(shares, even))
    return "even shares: larger shards of the fast devices would pad those of all the others";
  return "shares in proportion to speed, the fastest devices' capped: their shards pad all others";
}

std::vector<std::string> explain(std::string_view planner, const ReferenceGraph& graph,
                                 const NamedCluster& cluster, const HapPlan& plan) {
  std::vector<std::string> why = {summarize(plan.program, graph),
                                  describe_shares(plan.shares, cluster.rates)};
  why.push_back(fmt::format("{} {} of the program, {} states the last time", plan.searches,
                            plan.searches == 1 ? "search" : "searches", plan.program.expansions));
  why.push_back(
      "in HAP's own cost: a barrier after every operator, one speed a device, one rate a "
      "collective, no memory, no overlap; not to be compared with Motley's predictions");
  if (planner == kReleased)
    why.push_back(
        "as released: 4-byte elements are priced as bytes, and splitting a dimension of length 1 "
        "costs nothing, which leaves gradients unsummed");
  return why;
}

}  // namespace

std::vector<std::string> hap_planner_names() { return {kReleased, kDescribed}; }

bool is_hap_planner(std::string_view name) { return name == kReleased || name == kDescribed; }

std::vector<std::string> hap_model_names() {
  std::vector<std::string> names;
  for (const Family& family : families())
    names.push_back(family.name + std::to_string(family.layers));
  return names;
}

Result<ReferenceGraph> make_named_model(std::string_view name, std::int64_t devices) {
  const std::size_t letters = name.find_last_not_of("0123456789") + 1;
  const std::string_view family_name = name.substr(0, letters);
  const auto layers = find_integer(name.substr(letters));
  const bool is_depth = layers && *layers >= 1 && *layers <= kMostLayers;
  for (const Family& family : families()) {
    if (family.name != family_name || !is_depth) continue;
    if (family.name == "vgg" && *layers != family.layers) continue;
    return family.make(devices, *layers);
  }
  const std::vector<std::string> names = hap_model_names();
  return usage_error(
      "peers.hap-model",
      fmt::format("unknown workload '{}' of HAP{}; its workloads: {}; bert, vit and bert-moe with "
                  "1 to {} layers",
                  name, suggestion_clause(name, names), join(names, " "), kMostLayers));
}

Result<HapAnswer> ask_hap(std::string_view planner, const ReferenceGraph& graph,
                          const NamedCluster& cluster) {
  HapOptions options;
  if (planner == kDescribed) {
    options = hap_as_described();
    options.cost.latency = cluster.latency;
  }
  HapAnswer answer;
  MOTLEY_ASSIGN(answer.plan, make_hap_plan(graph, cluster.rates, options));
  MOTLEY_ASSIGN(const std::vector<OperatorRules> rules, make_rules(graph, options.rules));
  double flops = 0;
  for (const SpmdStep& step : answer.plan.program.steps) flops += rules[step.op].flops;
  double speed = 0, fastest = 0;
  for (const double each : cluster.rates.device_flops) {
    speed += each;
    fastest = std::max(fastest, each);
  }
  answer.lower_bound = flops / speed;
  answer.best_single = flops / fastest;
  const auto data_parallel = [&](const Shares& shares) {
    return data_parallel_seconds(graph, rules, HapCost(cluster.rates, options.cost, shares));
  };
  const auto count = cluster.rates.device_flops.size();
  answer.equal_split = data_parallel(Shares(count, 1.0 / static_cast<double>(count)));
  answer.proportional_split = data_parallel(proportional_shares(cluster.rates));
  answer.why = explain(planner, graph, cluster, answer.plan);
  return answer;
}

}  // namespace motley::peers
