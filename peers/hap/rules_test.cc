#include "peers/hap/rules.h"

#include <gtest/gtest.h>

namespace motley::peers {
namespace {

/// One operator over tensors of these shapes, inputs first.
ReferenceGraph graph_of(std::string kind, std::vector<std::vector<std::int64_t>> inputs,
                        std::vector<std::vector<std::int64_t>> outputs,
                        std::vector<std::int64_t> numbers = {}) {
  ReferenceGraph graph;
  ReferenceOperator op{std::move(kind), {}, {}, std::move(numbers)};
  const auto add = [&graph](std::vector<std::int64_t> shape, TensorRole role) {
    graph.tensors.push_back({"t" + std::to_string(graph.tensors.size()), std::move(shape), role});
    return TensorId(static_cast<std::int64_t>(graph.tensors.size()) - 1);
  };
  for (auto& shape : inputs) op.inputs.push_back(add(std::move(shape), TensorRole::kInput));
  for (auto& shape : outputs) op.outputs.push_back(add(std::move(shape), TensorRole::kActivation));
  if (!op.outputs.empty()) graph.loss = op.outputs.back();
  graph.operators.push_back(std::move(op));
  return graph;
}

std::string error_of(const ReferenceGraph& graph) {
  const auto rules = make_rules(graph);
  return rules ? "no error" : rules.error().code + ": " + rules.error().message;
}

/// Prints "gather(0) identity -> gather(0)", with '*' for shared flops and '-' for an unread input.
std::string text_of(const Triple& triple) {
  std::string text;
  for (const auto& form : triple.pre) text += (form ? form->text() : "-") + " ";
  text += "->";
  for (const HapForm form : triple.post) text += " " + form.text();
  return text + (triple.shared_flops > 0 ? " *" : "");
}

std::vector<std::string> texts_of(const ReferenceGraph& graph, const RuleOptions& options = {}) {
  std::vector<std::string> texts;
  const auto rules = make_rules(graph, options);
  EXPECT_TRUE(rules) << rules.error().message;
  for (const Triple& triple : rules->front().triples) texts.push_back(text_of(triple));
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Rules, LinearSplitsRowsOrOutputs) {
  const ReferenceGraph graph = graph_of("linear", {{4, 5, 6}, {7, 6}, {7}}, {{4, 5, 7}});
  EXPECT_EQ(texts_of(graph), (Texts{"identity identity identity -> identity",
                                    "gather(0) identity identity -> gather(0) *",
                                    "gather(1) identity identity -> gather(1) *",
                                    "identity gather(0) gather(0) -> gather(2) *"}));
  EXPECT_EQ(make_rules(graph)->front().flops, 3 * 3 * 4 * 5 * 6 * 7.0);
  const auto factored = make_rules(graph, {.sufficient_factors = true}).value();
  const Triple& triple = factored.front().triples[2];
  EXPECT_EQ(text_of(triple), "gather(0) factored identity -> gather(0) *");
  EXPECT_EQ(triple.whole_flops, 3 * 4 * 5 * 6 * 7.0);  // one of three parts, on every device
  EXPECT_EQ(triple.shared_flops, 2 * triple.whole_flops);
  EXPECT_EQ(triple.factors, (std::vector<double>{4 * 5 * 6, 4 * 5 * 7}));
}

TEST(Rules, ASingleRowIsSplitByTheReleasedRulesOnly) {
  const ReferenceGraph graph = graph_of("add", {{4, 6}, {1, 6}}, {{4, 6}});
  EXPECT_EQ(texts_of(graph),
            (Texts{"identity identity -> identity", "reduce reduce -> reduce",
                   "gather(0) gather(0) -> gather(0) *", "gather(1) gather(1) -> gather(1) *"}));
  EXPECT_EQ(texts_of(graph, {.sound = true}),
            (Texts{"identity identity -> identity", "reduce reduce -> reduce",
                   "gather(0) identity -> gather(0) *", "gather(1) gather(1) -> gather(1) *"}));
  // Flops of a dimension of length 1 are not shared.
  const ReferenceGraph single = graph_of("relu", {{1, 6}}, {{1, 6}});
  EXPECT_EQ(texts_of(single),
            (Texts{"identity -> identity", "gather(0) -> gather(0)", "gather(1) -> gather(1) *"}));
  EXPECT_EQ(texts_of(single, {.sound = true}),
            (Texts{"identity -> identity", "gather(1) -> gather(1) *"}));
}

TEST(Rules, LayerNormReadsItsParametersInSoundRulesOnly) {
  const ReferenceGraph graph = graph_of("layer_norm", {{4, 6}, {6}, {6}}, {{4, 6}}, {1});
  EXPECT_EQ(texts_of(graph), (Texts{"identity - - -> identity", "gather(0) - - -> gather(0) *"}));
  EXPECT_EQ(texts_of(graph, {.sound = true}),
            (Texts{"identity identity identity -> identity",
                   "gather(0) identity identity -> gather(0) *"}));
}

TEST(Rules, TheReleasedCombineSplitsAWrongDimension) {
  const ReferenceGraph graph =
      graph_of("becd,bsec->bsd", {{2, 3, 4, 5}, {2, 6, 3, 4}}, {{2, 6, 5}});
  EXPECT_EQ(texts_of(graph).back(), "identity gather(2) -> gather(1)");
  EXPECT_EQ(texts_of(graph, {.sound = true}).back(), "identity gather(1) -> gather(1) *");
  EXPECT_EQ(make_rules(graph)->front().flops, 3 * 3 * 2 * 3 * 4 * 5 * 6.0);
}

TEST(Rules, RefuseWhatTheyDoNotTake) {
  EXPECT_EQ(error_of(graph_of("bmm", {{2, 3}}, {{2, 3}})),
            "search.hap-operator: operator 0 (bmm): no rules for this kind");
  EXPECT_EQ(error_of(graph_of("linear", {{2, 3}, {3, 3}}, {{2, 3}})),
            "search.hap-operator: operator 0 (linear): 2 inputs, wanted 3");
  EXPECT_EQ(error_of(graph_of("linear", {{2, 3}, {3}, {3}}, {{2, 3}})),
            "search.hap-operator: operator 0 (linear): input 1 has 1 dimensions");
  EXPECT_EQ(error_of(graph_of("relu", {{2}}, {{2}, {2}})),
            "search.hap-operator: operator 0 (relu): 2 outputs, wanted 1");
  EXPECT_EQ(error_of(graph_of("transpose", {{2, 3}}, {{3, 2}}, {0})),
            "search.hap-operator: operator 0 (transpose): 1 numbers, wanted 2");
  EXPECT_EQ(error_of(graph_of("transpose", {{2, 3}}, {{3, 2}}, {0, 2})),
            "search.hap-operator: operator 0 (transpose): number 2 is no dimension of its input");
  EXPECT_EQ(error_of(graph_of("mul", {{2, 3}, {3}}, {{2, 3}})),
            "search.hap-operator: operator 0 (mul): inputs of unequal ranks");
  EXPECT_EQ(error_of(graph_of("nll_loss", {{2, 3}, {2, 3}}, {{}})),
            "search.hap-operator: operator 0 (nll_loss): wanted a target of one dimension less "
            "than its input");
}

TEST(Rules, RefuseGraphsThatCannotBe) {
  ReferenceGraph graph = graph_of("relu", {{2}}, {{2}});
  graph.operators.push_back(graph.operators.front());
  EXPECT_EQ(error_of(graph),
            "search.hap-graph: operator 1 (relu): makes 't1', which exists already");
  graph = graph_of("relu", {{2}}, {{2}});
  std::swap(graph.operators[0].inputs, graph.operators[0].outputs);
  EXPECT_EQ(error_of(graph), "search.hap-graph: operator 0 (relu): reads 't1' before it is made");
  graph = graph_of("relu", {{2}}, {{2}});
  graph.operators[0].inputs = {TensorId(7)};
  EXPECT_EQ(error_of(graph), "search.hap-graph: operator 0 (relu): unknown input");
  graph = graph_of("relu", {{2}}, {{2}});
  graph.operators[0].outputs = {TensorId()};
  EXPECT_EQ(error_of(graph), "search.hap-graph: operator 0 (relu): unknown output");
  graph = graph_of("relu", {{2}}, {{2}});
  graph.loss = TensorId();
  EXPECT_EQ(error_of(graph), "search.hap-graph: no operator makes the loss");
  EXPECT_EQ(error_of(graph_of("relu", {{0}}, {{0}})),
            "search.hap-graph: tensor 't0': a dimension below 1");
  EXPECT_EQ(error_of(graph_of("relu", {std::vector<std::int64_t>(13, 1)}, {{1}})),
            "search.hap-graph: tensor 't0': 13 dimensions, wanted at most 12");
  graph = graph_of("relu", {{2}}, {{2}});
  graph.tensors[0].communicatable = true;
  EXPECT_EQ(error_of(graph), "search.hap-graph: tensor 't0': only an activation is communicatable");
}

}  // namespace
}  // namespace motley::peers
