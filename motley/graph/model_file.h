#pragma once

#include <memory>
#include <string>

#include "motley/base/safetensors.h"
#include "motley/graph/graph.h"

namespace motley::graph {

/// A model as read from disk: its graph, and its weights if the file has them.
struct Model {
  Graph graph;
  /// The forward pass in eval mode, with metrics and the same parameters and buffers; null: none.
  std::shared_ptr<const Graph> evaluation;
  /// Tensors under state_dict names, mapped; null without. Models with different graphs share them.
  std::shared_ptr<const Safetensors> weights;
  std::string hash;    ///< hash_hex of the graph's text: identifies the model
  std::string source;  ///< argument of the exporter's command line; "": unknown
};

/// Reads a model file or a graph's text form. Checks that every parameter, buffer and constant has
/// a tensor of its dtype and shape, unless there are none at all (graph-only).
Result<Model> read_model(const std::string& path);

}  // namespace motley::graph
