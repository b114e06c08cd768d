#include "motley/synth/sample_sharding.h"

#include <optional>
#include <utility>

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::ShardingRule;
using graph::Strategy;

class Spreader {
 public:
  Spreader(const graph::Graph& graph, Sharding& sharding)
      : graph_(graph),
        sharding_(sharding),
        rules_(find_rules(graph, sharding.global_batch)),
        homes_(graph.values.size(), graph::kWholeForm) {}

  void spread() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].role == graph::ValueRole::kInput)
        homes_[v] =
            input_form(graph_, ValueId(static_cast<std::int64_t>(v)), sharding_.global_batch);
    sharding_.sources = homes_;
    sharding_.ops.clear();
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Strategy& chosen = sharding_.ops.emplace_back(choose(i));
      for (std::size_t r = 0; r < chosen.results.size(); ++r)
        homes_[graph_.ops[i].outputs[r].index()] = chosen.results[r];
    }
  }

 private:
  const Form& home(std::size_t op, std::size_t operand) const {
    return homes_[rules_[op].operands[operand].index()];
  }

  /// Conversions that a strategy needs; those that tear samples from their devices count most.
  int cost(std::size_t op, const Strategy& strategy) const {
    int total = 0;
    for (std::size_t o = 0; o < strategy.operands.size(); ++o) {
      const Form &from = home(op, o), &to = strategy.operands[o];
      if (from == to) continue;
      total += from.kind == FormKind::kSharded ? 10000 : from.kind == FormKind::kPartial ? 100 : 1;
    }
    return total;
  }

  Strategy choose(std::size_t op) const {
    Strategy best = whole_strategy(rules_[op]);
    std::optional<int> least;
    const auto offer = [&](const std::optional<Strategy>& strategy) {
      if (!strategy || !can_lower(graph_, OpId(static_cast<std::int64_t>(op)), rules_[op],
                                  *strategy, sharding_.shares))
        return;
      const int found = cost(op, *strategy);
      if (least && found >= *least) return;
      least = found;
      best = *strategy;
    };
    bool is_spread = false;
    for (std::size_t o = 0; o < rules_[op].operands.size(); ++o) {
      is_spread = is_spread || home(op, o).kind == FormKind::kSharded;
      offer(follow(rules_[op], static_cast<int>(o), home(op, o)));
    }
    if (!is_spread) offer(by_result(op));
    for (const Strategy& way : linear_strategies(rules_[op])) offer(way);
    offer(whole_strategy(rules_[op]));
    return best;
  }

  /// The split of what an operator makes out of nothing for each sample.
  std::optional<Strategy> by_result(std::size_t op) const {
    const std::vector<graph::SizeExpr>& shape = graph_.value(graph_.ops[op].outputs[0]).shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const graph::DimFactors& factors = rules_[op].result_factors[0][d];
      if (!shape[d].depends_on("batch") || factors.empty()) continue;
      const std::int64_t size = rules_[op].factors[static_cast<std::size_t>(factors[0])].size;
      if (size % sharding_.global_batch == 0)
        return split_strategy(rules_[op], factors[0], 1, size / sharding_.global_batch);
    }
    return std::nullopt;
  }

  const graph::Graph& graph_;
  Sharding& sharding_;
  const std::vector<ShardingRule> rules_;
  std::vector<Form> homes_;  // by value
};

}  // namespace

void spread_samples(const graph::Graph& graph, Sharding& sharding) {
  Spreader(graph, sharding).spread();
}

void keep_parameters_in_parts(const graph::Graph& graph, Sharding& sharding) {
  const auto devices = static_cast<std::int64_t>(sharding.devices.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const graph::Value& value = graph.values[v];
    if (value.role != graph::ValueRole::kParameter) continue;
    for (std::size_t d = 0; d < value.shape.size(); ++d) {
      const std::int64_t size = value.shape[d].evaluate_integer({});
      if (size < devices) continue;
      sharding.sources[v] = {FormKind::kSharded, static_cast<int>(d), 1, size, 1};
      break;
    }
  }
}

}  // namespace motley::synth
