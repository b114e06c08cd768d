#include "motley/search/region/random_sharding.h"

#include <utility>

#include "motley/base/random.h"
#include "motley/synth/ranks/lower_sharded.h"

namespace motley::search {
namespace {

using graph::Form;
using graph::FormKind;
using graph::Strategy;

/// percent of operators that continue an operand's split, or begin one; the rest runs whole
constexpr std::uint64_t kGoesOn = 75, kBegins = 20;

class Lottery {
 public:
  Lottery(const graph::Graph& graph, std::uint64_t seed, synth::Sharding& sharding)
      : graph_(graph),
        sharding_(sharding),
        rules_(synth::find_rules(graph, sharding.batch)),
        random_(seed),
        is_decided_(graph.values.size(), 1) {}

  void draw() {
    sharding_.sources.assign(graph_.values.size(), graph::kWholeForm);
    homes_.assign(graph_.values.size(), graph::kWholeForm);
    for (std::size_t v = 0; v < graph_.values.size(); ++v) {
      const graph::ValueRole role = graph_.values[v].role;
      const ValueId id(static_cast<std::int64_t>(v));
      if (role == graph::ValueRole::kInput)
        keep(id, synth::input_form(graph_, id, sharding_.batch));
      is_decided_[v] = role != graph::ValueRole::kParameter;
    }
    sharding_.ops.clear();
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Strategy& chosen = sharding_.ops.emplace_back(choose(i));
      settle_parameters(i, chosen);
      for (std::size_t r = 0; r < chosen.results.size(); ++r)
        homes_[graph_.ops[i].outputs[r].index()] = chosen.results[r];
    }
    draw_gathered_again();
  }

 private:
  void keep(ValueId id, const Form& form) {
    sharding_.sources[id.index()] = homes_[id.index()] = form;
  }

  void settle_parameters(std::size_t op, const Strategy& strategy) {
    for (std::size_t o = 0; o < strategy.operands.size(); ++o) {
      const ValueId id = rules_[op].operands[o];
      if (std::exchange(is_decided_[id.index()], 1)) continue;
      const Form& form = strategy.operands[o];
      if (form.kind == FormKind::kSharded && random_.below(5) > 0) keep(id, form);
    }
  }

  /// Draws which sharded parameters are gathered again: none, all or about half.
  void draw_gathered_again() {
    sharding_.gathered_again.clear();
    const std::uint64_t how = random_.below(3);
    for (const ValueId id : values_with_role(graph_, graph::ValueRole::kParameter))
      if (homes_[id.index()].kind == FormKind::kSharded &&
          (how == 0 || (how == 1 && random_.below(2) == 0)))
        sharding_.gathered_again.insert(id);
  }

  Strategy choose(std::size_t op) {
    const std::uint64_t fate = random_.below(100);
    std::vector<Strategy> choices;
    if (fate < kGoesOn) choices = going_on(op);
    if (choices.empty() && fate < kGoesOn + kBegins) choices = beginning(op);
    if (choices.empty()) return whole_strategy(rules_[op]);
    return std::move(choices[random_.below(choices.size())]);
  }

  void add(std::size_t op, std::optional<Strategy> strategy, std::vector<Strategy>& choices) const {
    const OpId id(static_cast<std::int64_t>(op));
    if (strategy && synth::can_lower(graph_, id, rules_[op], *strategy, sharding_.shares))
      choices.push_back(*std::move(strategy));
  }

  /// Returns splits that continue an operand's, and sums of terms that all partial operands allow.
  std::vector<Strategy> going_on(std::size_t op) const {
    std::vector<Strategy> choices;
    const graph::ShardingRule& rule = rules_[op];
    for (std::size_t o = 0; o < rule.operands.size(); ++o)
      add(op, follow(rule, static_cast<int>(o), homes_[rule.operands[o].index()]), choices);
    for (Strategy& way : linear_strategies(rule)) {
      bool fits = true;
      for (std::size_t o = 0; o < way.operands.size(); ++o)
        fits = fits && (way.operands[o] != graph::kPartialForm ||
                        homes_[rule.operands[o].index()] == graph::kPartialForm);
      if (fits) add(op, std::move(way), choices);
    }
    return choices;
  }

  std::vector<Strategy> beginning(std::size_t op) const {
    std::vector<Strategy> choices;
    for (std::size_t f = 0; f < rules_[op].factors.size(); ++f)
      if (rules_[op].factors[f].size > 1)
        add(op, split_strategy(rules_[op], static_cast<int>(f)), choices);
    return choices;
  }

  const graph::Graph& graph_;
  synth::Sharding& sharding_;
  const std::vector<graph::ShardingRule> rules_;
  SplitMix64 random_;
  std::vector<char> is_decided_;  // by value: a parameter's form is decided
  std::vector<Form> homes_;       // by value
};

}  // namespace

void draw_sharding(const graph::Graph& graph, std::uint64_t seed, synth::Sharding& sharding) {
  Lottery(graph, seed, sharding).draw();
}

}  // namespace motley::search
