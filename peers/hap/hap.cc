#include "peers/hap/hap.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "motley/search/spmd/balance.h"

namespace motley::peers {
namespace {

bool is_positive(double value) { return std::isfinite(value) && value > 0; }

Result<void> verify_cluster(const HapCluster& cluster, const HapCostOptions& options) {
  const auto fault = [](std::string message) {
    return usage_error("search.hap-cluster", std::move(message));
  };
  if (cluster.device_flops.empty()) return fault("no device");
  for (std::size_t i = 0; i < cluster.device_flops.size(); ++i)
    if (!is_positive(cluster.device_flops[i]))
      return fault(fmt::format("device {}: {} flops a second, wanted a positive number", i,
                               cluster.device_flops[i]));
  const CollectiveRates& rates = cluster.bytes_per_second;
  std::vector<std::pair<const char*, double>> wanted = {{"all_gather", rates.all_gather},
                                                        {"all_reduce", rates.all_reduce},
                                                        {"reduce_scatter", rates.reduce_scatter},
                                                        {"all_to_all", rates.all_to_all}};
  if (options.may_group) {
    wanted.emplace_back("grouped_all_gather", rates.grouped_all_gather);
    wanted.emplace_back("grouped_reduce_scatter", rates.grouped_reduce_scatter);
  }
  for (const auto& [name, rate] : wanted)
    if (!is_positive(rate))
      return fault(fmt::format("{}: {} bytes a second, wanted a positive number", name, rate));
  return {};
}

}  // namespace

HapOptions hap_as_described() {
  HapOptions options;
  options.rules = {.sound = true, .sufficient_factors = true};
  options.cost = {.bytes_per_element = 4, .may_group = true};
  return options;
}

Result<HapPlan> make_hap_plan(const ReferenceGraph& graph, const HapCluster& cluster,
                              const HapOptions& options) {
  MOTLEY_RETURN_IF_ERROR(verify_cluster(cluster, options.cost));
  MOTLEY_ASSIGN(const std::vector<OperatorRules> rules, make_rules(graph, options.rules));
  HapPlan plan;
  plan.program.seconds = std::numeric_limits<double>::infinity();
  for (Shares shares = proportional_shares(cluster); shares != plan.shares;) {
    MOTLEY_ASSIGN(SpmdProgram program,
                  find_program(graph, rules, HapCost(cluster, options.cost, shares)));
    ++plan.searches;
    if (program.seconds >= plan.program.seconds) break;
    plan.program = std::move(program);
    plan.shares =
        std::exchange(shares, search::balance(cluster.device_flops, plan.program.time.shared_flops,
                                              plan.program.time.padded_s));
  }
  return plan;
}

double data_parallel_seconds(const ReferenceGraph& graph, const std::vector<OperatorRules>& rules,
                             const HapCost& cost) {
  LinearTime time;
  for (const OperatorRules& op : rules) time.shared_flops += op.flops;
  for (const ReferenceTensor& tensor : graph.tensors)
    if (tensor.role == TensorRole::kParameter) time += *cost.load(tensor, HapForm::identity());
  return time.seconds(cost.effect());
}

}  // namespace motley::peers
