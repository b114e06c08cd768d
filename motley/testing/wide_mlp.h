#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "motley/cost/measured/profile_store.h"
#include "motley/graph/graph_text.h"
#include "motley/search/price/costs.h"
#include "motley/search/split/step_evaluator.h"

namespace motley::search {

/// Returns a wide MLP, whose weights outweigh the samples.
inline std::string mlp_text(int width) {
  std::string text = fmt::format(
      "motley.graph/1\nname \"wide\"\nsize batch 1 4096\n"
      "input %0: f32[batch, {0}] \"x\"\nparam %1: f32[{0}, {0}] \"a\"\n"
      "param %2: f32[{0}, {0}] \"b\"\ntangent %3: f32[]\n"
      "op %4: f32[batch, {0}] = aten::mm(%0, %1) fwd \"first\"\n"
      "op %5: f32[batch, {0}] = aten::relu(%4) fwd \"first\"\n"
      "op %6: f32[batch, {0}] = aten::mm(%5, %2) fwd \"second\"\n"
      "op %7: f32[] = aten::sum(%6, none) fwd \"\"\n"
      "op %8: f32[batch, {0}] = aten::expand(%3, [size(batch), {0}], false) bwd \"\"\n"
      "op %9: f32[{0}, batch] = aten::t(%5) bwd \"second\"\n"
      "op %10: f32[{0}, {0}] = aten::mm(%9, %8) bwd \"second\"\n"
      "op %11: f32[{0}, {0}] = aten::t(%2) bwd \"second\"\n"
      "op %12: f32[batch, {0}] = aten::mm(%8, %11) bwd \"second\"\n"
      "op %13: f32[batch, {0}] = aten::threshold_backward(%12, %5, 0) bwd \"first\"\n"
      "op %14: f32[{0}, batch] = aten::t(%0) bwd \"first\"\n"
      "op %15: f32[{0}, {0}] = aten::mm(%14, %13) bwd \"first\"\n"
      "output loss %7\noutput gradient %15 of \"a\"\noutput gradient %10 of \"b\"\n",
      width);
  return text;
}

/// Returns layers of a product and a relu, all of one width; the loss is the sum.
inline std::string deep_text(int layers, int width) {
  std::string text = "motley.graph/1\nname \"deep\"\nsize batch 1 4096\n";
  const std::string shape = fmt::format("f32[batch, {}]", width);
  const std::string weight = fmt::format("f32[{0}, {0}]", width);
  text += fmt::format("input %0: {} \"x\"\n", shape);
  for (int l = 0; l < layers; ++l)
    text += fmt::format("param %{}: {} \"h.{}.w\"\n", 1 + l, weight, l);
  int next = layers + 1;
  text += fmt::format("tangent %{}: f32[]\n", next++);
  const auto add = [&](const std::string& type, const std::string& what, const std::string& where) {
    text += fmt::format("op %{}: {} = aten::{} {}\n", next, type, what, where);
    return next++;
  };
  std::vector<int> inputs = {0};
  for (int l = 0; l < layers; ++l) {
    const std::string module = fmt::format("fwd \"h.{}\"", l);
    const int product = add(shape, fmt::format("mm(%{}, %{})", inputs.back(), 1 + l), module);
    inputs.push_back(add(shape, fmt::format("relu(%{})", product), module));
  }
  const int loss = add("f32[]", fmt::format("sum(%{}, none)", inputs.back()), "fwd \"head\"");
  int gradient = add(shape, fmt::format("expand(%{}, [size(batch), {}], false)", layers + 1, width),
                     "bwd \"head\"");
  std::string outputs = fmt::format("output loss %{}\n", loss);
  for (int l = layers; l-- > 0;) {
    const std::string module = fmt::format("bwd \"h.{}\"", l);
    const auto layer = static_cast<std::size_t>(l);
    gradient = add(
        shape, fmt::format("threshold_backward(%{}, %{}, 0)", gradient, inputs[layer + 1]), module);
    const int turned =
        add(fmt::format("f32[{}, batch]", width), fmt::format("t(%{})", inputs[layer]), module);
    const int of_weight = add(weight, fmt::format("mm(%{}, %{})", turned, gradient), module);
    outputs += fmt::format("output gradient %{} of \"h.{}.w\"\n", of_weight, l);
    if (l == 0) break;
    const int back = add(weight, fmt::format("t(%{})", 1 + l), module);
    gradient = add(shape, fmt::format("mm(%{}, %{})", gradient, back), module);
  }
  return text + outputs;
}

class WideMlpTest : public ::testing::Test {
 protected:
  /// Sets up two kinds behind a link (bandwidth_) with `memory` each ("": their own).
  void set_up(int width, const std::string& memory, std::int64_t batch = 64) {
    set_up(mlp_text(width), memory, batch);
  }
  void set_up(const std::string& text, const std::string& memory, std::int64_t batch) {
    auto graph = graph::parse_graph(text, "wide");
    ASSERT_TRUE(graph) << graph.error().message;
    model_.graph = *std::move(graph);
    model_.hash = "wide";
    const std::string limit = memory.empty() ? "" : "memory = \"" + memory + "\"\n";
    auto cluster = cluster::parse_cluster(
        fmt::format(
            "schema = \"motley.cluster/1\"\nname = \"two\"\n"
            "[[node]]\nname = \"a\"\nhost = \"h1\"\n[[node.device]]\nkind = \"rtx4090\"\n{0}"
            "[[node]]\nname = \"b\"\nhost = \"h2\"\n[[node.device]]\nkind = \"rtx3090\"\n{0}"
            "[[link]]\nall = true\nbandwidth = \"{1}\"\nlatency = \"20us\"\n",
            limit, bandwidth_),
        "two");
    ASSERT_TRUE(cluster) << cluster.error().message;
    cluster_ = *std::move(cluster);
    const auto store = cost::ProfileStore::open(":memory:");
    CostOptions options;
    options.torch = "2.15.0";
    options.global_batch = batch;
    options.devices = {DeviceId(0), DeviceId(1)};
    auto costs = load_costs(model_, cluster_, *store, options);
    ASSERT_TRUE(costs) << costs.error().message;
    costs_ = *std::move(costs);
    auto evaluator = StepEvaluator::make(model_.graph, cluster_, options.lowering, costs_);
    ASSERT_TRUE(evaluator) << evaluator.error().message;
    evaluator_ = *std::move(evaluator);
    problem_.cluster = &cluster_;
    problem_.model_hash = model_.hash;
    problem_.global_batch = batch;
    problem_.devices = options.devices;
  }

  std::string bandwidth_ = "10Gbps";
  graph::Model model_;
  cluster::Cluster cluster_;
  Costs costs_;
  std::unique_ptr<StepEvaluator> evaluator_;
  plan::Problem problem_;
};

}  // namespace motley::search
