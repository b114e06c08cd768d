#pragma once

#include <memory>
#include <string>

#include "motley/base/safetensors.h"
#include "motley/graph/graph.h"

namespace motley::graph {

/// A model as read from disk: the graph, and the weights unless the file is graph-only or plain
/// text.
struct Model {
  Graph graph;
  /// Of the forward pass in eval mode, with metrics; its parameters, buffers and constants are the
  /// same tensors. Null in a file without one.
  std::shared_ptr<const Graph> evaluation;
  /// Tensors under state_dict names, mapped; null without. Models that differ in their graph share
  /// them.
  std::shared_ptr<const Safetensors> weights;
  std::string hash;    ///< hash_hex of the graph's text: identifies the model
  std::string source;  ///< what the exporter's command line was given; "": it is not known
};

/// Reads a model file or a graph's text form. Checks that every parameter, buffer and constant has
/// a tensor of its dtype and shape, unless there are none at all (graph-only).
Result<Model> read_model(const std::string& path);

}  // namespace motley::graph
