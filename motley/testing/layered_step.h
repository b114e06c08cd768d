#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "motley/graph/graph_text.h"
#include "motley/plan/plan.h"

namespace motley::synth {

struct Layers {
  int layers = 2;
  int weights = 0;  ///< how many; 0: one per layer
  int width = 3;
};

/// The text of a step with layers in modules "l0", "l1", ...: each multiplies x [batch, width] by a
/// weight "w0", "w1", ... and clips it. The loss, in module "loss", sums the squares of the result.
/// Layer i has weight i % weights; gradients of a shared weight are summed.
///
///   forward of a layer    h = mm(a, w), a' = relu(h)
///   backward of a layer   d = threshold_backward(g, h), t(a), mm = gradient of w; then t(w) and
///                         mm = the next g, but for l0
class LayeredText {
 public:
  explicit LayeredText(const Layers& of)
      : weights_(of.weights > 0 ? of.weights : of.layers),
        activation_(fmt::format("f32[batch, {}]", of.width)),
        weight_(fmt::format("f32[{0}, {0}]", of.width)),
        turned_(fmt::format("f32[{}, batch]", of.width)) {
    const auto source = [&](const std::string& text) {
      lines_ += fmt::format(fmt::runtime(text), next_);
      return next_++;
    };
    activations_ = {source("input %{}: " + activation_ + " \"x\"\n")};
    for (int w = 0; w < weights_; ++w) source(fmt::format("param %{{}}: {} \"w{}\"\n", weight_, w));
    const int tangent = source("tangent %{}: f32[]\n");
    for (int l = 0; l < of.layers; ++l) add_forward(l);
    const int out = activations_.back();
    const int squares = add(activation_, fmt::format("mul.Tensor(%{0}, %{0}) fwd \"loss\"", out));
    const int loss = add("f32[]", fmt::format("sum(%{}, none) fwd \"loss\"", squares));
    const int slope = add(activation_, fmt::format("mul.Scalar(%{}, 2) bwd \"loss\"", out));
    int g = add(activation_, fmt::format("mul.Tensor(%{}, %{}) bwd \"loss\"", slope, tangent));
    std::vector<int> gradients(static_cast<std::size_t>(weights_), -1);
    for (int l = of.layers; l-- > 0;) g = add_backward(l, g, gradients);
    lines_ += fmt::format("output loss %{}\n", loss);
    for (int w = 0; w < weights_; ++w)
      lines_ += fmt::format("output gradient %{} of \"w{}\"\n",
                            gradients[static_cast<std::size_t>(w)], w);
  }

  const std::string& lines() const { return lines_; }

 private:
  int add(const std::string& type, const std::string& rest) {
    lines_ += fmt::format("op %{}: {} = aten::{}\n", next_, type, rest);
    return next_++;
  }
  int weight(int layer) const { return 1 + layer % weights_; }

  void add_forward(int l) {
    products_.push_back(add(
        activation_, fmt::format("mm(%{}, %{}) fwd \"l{}\"", activations_.back(), weight(l), l)));
    activations_.push_back(
        add(activation_, fmt::format("relu(%{}) fwd \"l{}\"", products_.back(), l)));
  }

  int add_backward(int l, int g, std::vector<int>& gradients) {
    const auto at = static_cast<std::size_t>(l);
    const std::string module = fmt::format(" bwd \"l{}\"", l);
    const int d = add(activation_,
                      fmt::format("threshold_backward(%{}, %{}, 0){}", g, products_[at], module));
    const int turned = add(turned_, fmt::format("t(%{}){}", activations_[at], module));
    const int term = add(weight_, fmt::format("mm(%{}, %{}){}", turned, d, module));
    int& all = gradients[static_cast<std::size_t>(l % weights_)];
    all =
        all < 0 ? term : add(weight_, fmt::format("add.Tensor(%{}, %{}, 1){}", all, term, module));
    if (l == 0) return -1;
    const int back = add(weight_, fmt::format("t(%{}){}", weight(l), module));
    return add(activation_, fmt::format("mm(%{}, %{}){}", d, back, module));
  }

  const int weights_;
  const std::string activation_, weight_, turned_;  // types
  int next_ = 0;
  std::string lines_;
  std::vector<int> activations_, products_;  // by layer: its input and its product
};

/// Makes a graph of these lines, for batches of 1 to 64.
inline graph::Graph step_of_lines(const std::string& lines) {
  auto graph = graph::parse_graph("motley.graph/1\nname \"s\"\nsize batch 1 64\n" + lines, "s");
  EXPECT_TRUE(graph) << graph.error().message;
  return *std::move(graph);
}

inline graph::Graph layered_step(const Layers& of) {
  return step_of_lines(LayeredText(of).lines());
}

/// Makes a region of one device with the operators of these modules.
inline plan::Region modules_on(const graph::Graph& graph, std::int64_t device,
                               const std::vector<std::string>& modules) {
  plan::Region region{{DeviceId(device)}, {1.0}};
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    if (std::find(modules.begin(), modules.end(), graph.ops[i].module) != modules.end())
      plan::append(region.covers, static_cast<std::int64_t>(i));
  return region;
}

inline plan::Plan plan_of_replicas(std::vector<plan::Replica> replicas) {
  plan::Plan plan;
  plan.model_hash = "model";
  plan.replicas = std::move(replicas);
  for (const plan::Replica& replica : plan.replicas) plan.global_batch += replica.samples;
  return plan;
}

}  // namespace motley::synth
