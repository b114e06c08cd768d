#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "motley/cost/measured/profile_store.h"
#include "motley/graph/graph_text.h"
#include "motley/search/price/costs.h"
#include "motley/search/split/step_evaluator.h"

namespace motley::search {

/// A wide MLP: weights outweigh the samples.
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

class WideMlpTest : public ::testing::Test {
 protected:
  /// Two kinds behind a link (bandwidth_), each with so much memory ("" = its own).
  void set_up(int width, const std::string& memory, std::int64_t batch = 64) {
    set_up(mlp_text(width), memory, batch);
  }
  /// The same of another graph.
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
