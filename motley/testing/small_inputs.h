#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "motley/base/file.h"
#include "motley/base/safetensors.h"
#include "motley/control/planning/inputs.h"
#include "motley/graph/graph_text.h"
#include "motley/testing/places.h"

namespace motley::control {

/// A directory that is removed with the object.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "motley-test-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Two whole CPUs of one machine; three emulated ones; a CPU and a device of an absent kind.
inline constexpr const char* kTwoCpus = R"(schema = "motley.cluster/1"
name = "two"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  [[node.device]]
  kind = "cpu"
)";
inline constexpr const char* kEmulated = R"(schema = "motley.cluster/1"
name = "three"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
  speed = 0.8
  [[node.device]]
  kind = "cpu"
  speed = 0.4
  [[node.device]]
  kind = "cpu"
  speed = 0.2
)";
inline constexpr const char* kOneIsFar = R"(schema = "motley.cluster/1"
name = "far"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
[[node]]
name = "b"
  [[node.device]]
  kind = "rtx4090"
[[link]]
all = true
bandwidth = "10Gbps"
latency = "50us"
)";

/// Returns the golden MLP's text: 12 features, 32 hidden, 5 classes.
inline std::string mlp_text() {
  return read_file(testing::source_path("tests/golden/graph/mlp.txt")).value();
}

/// Returns its forward pass: loss, and the mean of the hidden layer as a metric.
inline std::string mlp_evaluation_text() {
  return read_file(testing::source_path("tests/golden/graph/mlp_evaluation.txt")).value();
}

/// Writes a model file of the MLP with weights 0.
inline Result<void> write_mlp(const std::string& path) {
  const graph::Graph graph = graph::parse_graph(mlp_text(), "mlp").value();
  const std::vector<std::byte> zeros(4 * 32 * 12);  // the largest tensor
  std::vector<NamedTensor> tensors;
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kParameter)) {
    const graph::Value& value = graph.value(id);
    TensorView tensor{.dtype = value.dtype};
    std::size_t bytes = 4;
    for (const auto& size : value.shape) {
      tensor.shape.push_back(size.evaluate_integer({}));
      bytes *= static_cast<std::size_t>(tensor.shape.back());
    }
    tensor.bytes = std::span(zeros).first(bytes);
    tensors.push_back({value.name, tensor});
  }
  return write_safetensors(path, tensors, {{"motley.graph", mlp_text()}});
}

/// Writes data for the MLP: four samples of 12 features and a class.
inline Result<void> write_mlp_data(const std::string& path) {
  const std::vector<float> x(4 * 12, 0.5F);
  const std::vector<std::int64_t> y = {0, 1, 2, 3};
  const NamedTensor tensors[] = {{"x", {DType::kF32, {4, 12}, std::as_bytes(std::span(x))}},
                                 {"y", {DType::kI64, {4}, std::as_bytes(std::span(y))}}};
  return write_safetensors(path, tensors, {});
}

/// Allows all devices; an empty weights file lets the model be trained.
inline Inputs small_inputs(const std::string& cluster, std::int64_t global_batch) {
  graph::Model model;
  model.graph = graph::parse_graph(mlp_text(), "mlp").value();
  model.hash = "00000000000000aa";
  const TemporaryDirectory directory;
  if (write_safetensors(directory.file("w"), {}, {}))
    model.weights =
        std::make_shared<const Safetensors>(Safetensors::open(directory.file("w")).value());
  Inputs inputs;
  inputs.model_path = "mlp.motley";
  inputs.model = std::make_shared<const graph::Model>(std::move(model));
  inputs.cluster = cluster::parse_cluster(cluster, "cluster").value();
  for (std::size_t i = 0; i < inputs.cluster.devices.size(); ++i)
    inputs.devices.emplace_back(static_cast<std::int64_t>(i));
  inputs.global_batch = global_batch;
  return inputs;
}

}  // namespace motley::control
