#include "peers/hap/reference_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "peers/hap/hap_form.h"

namespace motley::peers {
namespace {

tl::unexpected<Error> fault(std::string message) {
  return usage_error("search.hap-graph", std::move(message));
}

Result<void> verify_tensor(const ReferenceTensor& tensor) {
  if (tensor.shape.size() > HapForm::kMaxRank)
    return fault(fmt::format("tensor '{}': {} dimensions, wanted at most {}", tensor.name,
                             tensor.shape.size(), HapForm::kMaxRank));
  if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](auto n) { return n < 1; }))
    return fault(fmt::format("tensor '{}': a dimension below 1", tensor.name));
  if (tensor.communicatable && tensor.role != TensorRole::kActivation)
    return fault(fmt::format("tensor '{}': only an activation is communicatable", tensor.name));
  return {};
}

bool is_known(TensorId id, const ReferenceGraph& graph) {
  return !id.is_none() && id.index() < graph.tensors.size();
}

}  // namespace

double element_count(const ReferenceTensor& tensor) {
  double count = 1;
  for (const std::int64_t size : tensor.shape) count *= static_cast<double>(size);
  return count;
}

double parameter_elements(const ReferenceGraph& graph) {
  double count = 0;
  for (const ReferenceTensor& tensor : graph.tensors)
    if (tensor.role == TensorRole::kParameter) count += element_count(tensor);
  return count;
}

Result<void> verify(const ReferenceGraph& graph) {
  std::vector<bool> is_made;
  for (const ReferenceTensor& tensor : graph.tensors) {
    MOTLEY_RETURN_IF_ERROR(verify_tensor(tensor));
    is_made.push_back(tensor.role != TensorRole::kActivation);
  }
  for (std::size_t i = 0; i < graph.operators.size(); ++i) {
    const ReferenceOperator& op = graph.operators[i];
    const std::string place = fmt::format("operator {} ({})", i, op.kind);
    for (const TensorId input : op.inputs) {
      if (!is_known(input, graph)) return fault(place + ": unknown input");
      if (!is_made[input.index()])
        return fault(fmt::format("{}: reads '{}' before it is made", place,
                                 graph.tensors[input.index()].name));
    }
    for (const TensorId output : op.outputs) {
      if (!is_known(output, graph)) return fault(place + ": unknown output");
      if (is_made[output.index()])
        return fault(fmt::format("{}: makes '{}', which exists already", place,
                                 graph.tensors[output.index()].name));
      is_made[output.index()] = true;
    }
  }
  if (!is_known(graph.loss, graph) || !is_made[graph.loss.index()])
    return fault("no operator makes the loss");
  return {};
}

}  // namespace motley::peers
