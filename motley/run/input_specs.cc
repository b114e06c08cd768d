#include "motley/run/input_specs.h"

#include <utility>

namespace motley::run {

std::vector<data::InputSpec> input_specs(const graph::Graph& graph) {
  graph::Sizes sizes;
  for (const graph::NamedSize& size : graph.sizes) sizes[size.name] = size.min;
  std::vector<data::InputSpec> specs;
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kInput)) {
    const graph::Value& value = graph.value(id);
    data::InputSpec spec{value.name, value.dtype, {}};
    for (std::size_t d = 1; d < value.shape.size(); ++d)
      spec.sample_shape.push_back(value.shape[d].evaluate_integer(sizes));
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::map<std::string, std::string> canonical_names(const graph::Graph& graph) {
  std::map<std::string, std::string> names;
  for (const graph::Value& value : graph.values)
    for (const std::string& tied : value.tied) names[tied] = value.name;
  return names;
}

}  // namespace motley::run
