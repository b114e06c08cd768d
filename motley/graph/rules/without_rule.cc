#include "motley/graph/rules/without_rule.h"

#include <algorithm>

#include "motley/graph/draws.h"
#include "motley/graph/layers.h"
#include "motley/graph/reach.h"
#include "motley/graph/rules/sharding_rule.h"

namespace motley::graph {
namespace {

/// Returns whether an operator depends on samples: those on parameters alone have none to share.
bool works_on_samples(const Graph& graph, const Op& op) {
  bool found = false;
  const auto look = [&](ValueId value) {
    for (const SizeExpr& size : graph.value(value).shape) found = found || size.depends_on("batch");
  };
  for_each_value(op.arguments, look);
  for (const ValueId output : op.outputs) look(output);
  return found;
}

}  // namespace

std::vector<std::string> explain_without_rule(const Graph& graph, const Sizes& sizes) {
  const Reach live = find_live(graph);
  std::vector<std::string> lines;
  bool has_any_rule = false;
  for (const Layer& layer : find_layers(graph)) {
    std::vector<std::string> names;
    const std::string where = layer.path.empty() ? "" : layer.path + ": ";
    bool has_permutation = false;
    for (const OpId id : layer.ops) {
      const Op& op = graph.op(id);
      if (!live.holds(id.index()) || !works_on_samples(graph, op)) continue;
      has_permutation = has_permutation || draws_across(op);
      if (find_rule(graph, id, sizes)) {
        has_any_rule = true;
      } else if (std::find(names.begin(), names.end(), op.name) == names.end()) {
        names.push_back(op.name);
      }
    }
    if (has_permutation)
      lines.push_back(where + "whole: a permutation of all samples, which each device draws alike");
    if (names.empty()) continue;
    std::string line = where + "whole: no rule for ";
    for (std::size_t i = 0; i < names.size(); ++i) line += (i > 0 ? ", " : "") + names[i];
    lines.push_back(std::move(line));
  }
  if (!lines.empty() && !has_any_rule)
    lines.push_back("no operator has a rule: several devices would all do the same");
  return lines;
}

}  // namespace motley::graph
