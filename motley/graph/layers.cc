#include "motley/graph/layers.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace motley::graph {
namespace {

/// Calls `visit(parent, child)` for each numeric component of a path, outermost first: "h.3.attn"
/// gives ("h", "h.3"). Stops when it returns true.
template <typename Visit>
void for_each_numbered(std::string_view path, const Visit& visit) {
  std::size_t begin = 0;
  while (begin < path.size()) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view component = path.substr(begin, end - begin);
    const bool number =
        !component.empty() && component.find_first_not_of("0123456789") == std::string_view::npos;
    const std::string_view parent = path.substr(0, begin == 0 ? 0 : begin - 1);
    if (number && visit(parent, path.substr(0, end))) return;
    begin = end + 1;
  }
}

/// Finds parents with at least two numbered children.
std::set<std::string_view> find_stacks(const Graph& graph) {
  std::map<std::string_view, std::set<std::string_view>> children;
  for (const Op& op : graph.ops) {
    for_each_numbered(op.module, [&](std::string_view parent, std::string_view child) {
      children[parent].insert(child);
      return false;
    });
  }
  std::set<std::string_view> stacks;
  for (const auto& [parent, own] : children) {
    if (own.size() >= 2) stacks.insert(parent);
  }
  return stacks;
}

std::string_view layer_path(std::string_view module, const std::set<std::string_view>& stacks) {
  std::string_view path = module.substr(0, module.find('.'));
  for_each_numbered(module, [&](std::string_view parent, std::string_view child) {
    if (!stacks.contains(parent)) return false;
    path = child;
    return true;
  });
  return path;
}

}  // namespace

std::vector<Layer> find_layers(const Graph& graph) {
  const auto stacks = find_stacks(graph);
  std::vector<Layer> layers;
  std::map<std::string_view, std::size_t> index;
  std::vector<bool> seen(graph.values.size(), false);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const std::string_view path = layer_path(op.module, stacks);
    const auto [at, is_new] = index.emplace(path, layers.size());
    if (is_new) layers.push_back({std::string(path), {}, {}});
    Layer& layer = layers[at->second];
    layer.ops.emplace_back(static_cast<std::int64_t>(i));
    for_each_value(op.arguments, [&](ValueId id) {
      if (graph.value(id).role != ValueRole::kParameter || seen[id.index()]) return;
      seen[id.index()] = true;
      layer.parameters.push_back(id);
    });
  }
  return layers;
}

}  // namespace motley::graph
