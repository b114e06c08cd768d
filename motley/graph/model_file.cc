#include "motley/graph/model_file.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/base/random.h"
#include "motley/graph/graph_text.h"

namespace motley::graph {
namespace {

constexpr std::string_view kTextStart = "motley.graph/";

std::string print_type(DType dtype, const std::vector<std::int64_t>& shape) {
  return fmt::format("{}[{}]", dtype_name(dtype), fmt::join(shape, ", "));
}

Result<void> check_tensor(const Safetensors& weights, const Value& value, const std::string& name,
                          const std::string& path) {
  std::vector<std::int64_t> shape;
  for (const SizeExpr& size : value.shape) shape.push_back(size.evaluate_integer({}));
  const auto found = weights.tensors().find(name);
  if (found == weights.tensors().end()) {
    return usage_error("graph.weights",
                       fmt::format("{}: no tensor '{}', wanted {}; export the model again", path,
                                   name, print_type(value.dtype, shape)));
  }
  const TensorView& tensor = found->second;
  if (tensor.dtype == value.dtype && tensor.shape == shape) return {};
  return usage_error(
      "graph.weights",
      fmt::format("{}: tensor '{}': found {}, wanted {}; export the model again", path, name,
                  print_type(tensor.dtype, tensor.shape), print_type(value.dtype, shape)));
}

Result<void> check_weights(const Safetensors& weights, const Graph& graph,
                           const std::string& path) {
  for (const Value& value : graph.values) {
    if (value.role != ValueRole::kParameter && value.role != ValueRole::kBuffer &&
        value.role != ValueRole::kConstant) {
      continue;
    }
    MOTLEY_RETURN_IF_ERROR(check_tensor(weights, value, value.name, path));
    for (const std::string& tied : value.tied) {
      MOTLEY_RETURN_IF_ERROR(check_tensor(weights, value, tied, path));
    }
  }
  return {};
}

Result<Model> make_model(std::string_view text, const std::string& path) {
  Model model;
  MOTLEY_ASSIGN(model.graph, parse_graph(text, path));
  model.hash = hash_hex(print_graph(model.graph));
  return model;
}

}  // namespace

Result<Model> read_model(const std::string& path) {
  MOTLEY_ASSIGN(const MappedFile file, MappedFile::open(path));
  const std::string_view bytes = file.text();
  // A comment may come first; a safetensors header starting with '#' would be too long.
  if (bytes.starts_with(kTextStart) || bytes.starts_with('#')) return make_model(bytes, path);
  MOTLEY_ASSIGN(Safetensors weights, Safetensors::open(path));
  const auto text = weights.metadata().find("motley.graph");
  if (text == weights.metadata().end()) {
    return usage_error("graph.no-graph",
                       path +
                           ": no 'motley.graph' in its metadata, so it is not a model file; "
                           "write one with python -m motley.export");
  }
  MOTLEY_ASSIGN(Model model, make_model(text->second, path));
  const auto source = weights.metadata().find("motley.source");
  if (source != weights.metadata().end()) model.source = source->second;
  const auto evaluation = weights.metadata().find("motley.eval");
  if (evaluation != weights.metadata().end()) {
    MOTLEY_ASSIGN(Graph parsed, parse_graph(evaluation->second, path + ": motley.eval"));
    model.evaluation = std::make_shared<const Graph>(std::move(parsed));
  }
  if (weights.tensors().empty()) return model;
  MOTLEY_RETURN_IF_ERROR(check_weights(weights, model.graph, path));
  if (model.evaluation) MOTLEY_RETURN_IF_ERROR(check_weights(weights, *model.evaluation, path));
  model.weights = std::make_shared<const Safetensors>(std::move(weights));
  return model;
}

}  // namespace motley::graph
