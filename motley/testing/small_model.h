#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "motley/base/file.h"
#include "motley/graph/model_file.h"
#include "motley/testing/places.h"
#include "motley/testing/run_graph.h"

namespace motley::run {

/// The golden MLP and its forward pass with drawn weights and eleven samples. Files are float32.
class SmallModel {
 public:
  static constexpr std::int64_t kSamples = 11;

  SmallModel() {
    const std::string path = testing::source_path("tests/golden/graph/mlp.txt");
    text_ = read_file(path).value();
    graph = graph::parse_graph(text_, path).value();
    evaluation_text_ =
        read_file(testing::source_path("tests/golden/graph/mlp_evaluation.txt")).value();
    evaluation = graph::parse_graph(evaluation_text_, "evaluation").value();
    given = testing::draw_values(graph, kSamples, 7);
    for (auto& [name, tensor] : given)
      for (double& each : tensor.at) each = static_cast<double>(static_cast<float>(each));
  }

  /// Writes the model file: with a tensor beside the graph's, or without any.
  void write(const std::string& path, bool has_weights = true) const {
    std::map<std::string, testing::Tensor> tensors = {{"note", {{2}, {3, 4}}}};
    for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kParameter))
      tensors[graph.value(id).name] = given.at(graph.value(id).name);
    if (!has_weights) tensors.clear();
    write_tensors(path, tensors, {{"motley.graph", text_}, {"motley.eval", evaluation_text_}});
  }

  /// Writes the samples; `spoilt` replaces all features of some.
  void write_data(const std::string& path,
                  const std::map<std::int64_t, double>& spoilt = {}) const {
    std::map<std::string, testing::Tensor> inputs = {{"x", given.at("x")}, {"y", given.at("y")}};
    for (const auto& [sample, value] : spoilt)
      std::fill_n(inputs["x"].at.begin() + sample * 12, 12, value);
    write_tensors(path, inputs, {});
  }

  graph::Graph graph, evaluation;
  testing::NamedTensors given;  ///< parameters, and inputs of all samples

 private:
  static void write_tensors(const std::string& path,
                            const std::map<std::string, testing::Tensor>& tensors,
                            const std::map<std::string, std::string>& metadata) {
    std::vector<std::vector<float>> floats(tensors.size());
    std::vector<std::int64_t> labels;
    std::vector<NamedTensor> named;
    for (const auto& [name, tensor] : tensors) {
      if (name == "y") {
        labels.assign(tensor.at.begin(), tensor.at.end());
        named.push_back({name, {DType::kI64, tensor.shape, std::as_bytes(std::span(labels))}});
        continue;
      }
      auto& kept = floats[named.size()];
      kept.assign(tensor.at.begin(), tensor.at.end());
      named.push_back({name, {DType::kF32, tensor.shape, std::as_bytes(std::span(kept))}});
    }
    const auto written = write_safetensors(path, named, metadata);
    ASSERT_TRUE(written) << written.error().message;
  }

  std::string text_, evaluation_text_;
};

}  // namespace motley::run
