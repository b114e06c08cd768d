#include "motley/plan/owners.h"

#include <fmt/format.h>

#include "motley/plan/recipe.h"

namespace motley::plan {

Result<std::map<std::string, std::size_t>> find_owners(const std::vector<Owners>& owners,
                                                       const graph::Graph& graph) {
  std::map<std::string, std::size_t> found;
  const auto parameters = graph::values_with_role(graph, graph::ValueRole::kParameter);
  for (std::size_t i = 0; i < owners.size(); ++i)
    for (const std::string& pattern : owners[i].parameters) {
      bool matches = false;
      for (const ValueId id : parameters) {
        const graph::Value& parameter = graph.value(id);
        if (!matches_parameter(pattern, parameter)) continue;
        matches = true;
        const auto [known, is_new] = found.emplace(parameter.name, i);
        if (!is_new && known->second != i)
          return usage_error("plan.owners",
                             fmt::format("owners {} and {} both name parameter '{}'; each "
                                         "parameter has one entry at most",
                                         known->second, i, parameter.name));
      }
      if (!matches)
        return usage_error(
            "plan.owners",
            fmt::format("owners {}: no parameter of the model is named '{}'", i, pattern));
    }
  return found;
}

}  // namespace motley::plan
