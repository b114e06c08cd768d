#include "motley/synth/ranks/sample_sharding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "motley/graph/graph_text.h"
#include "motley/graph/reach.h"

namespace motley::synth {
namespace {

constexpr std::int64_t kBatch = 10;

/// A graph with inputs %0 f32[batch, 4], %1 i64[batch], %2 f32[batch, 3, 4]; parameters
/// %3 f32[4, 4], %4 f32[4]; tangent %5; then `ops`, whose values start at %6.
graph::Graph graph_of_forms(const std::string& ops, int next) {
  const std::string text =
      R"(motley.graph/1
name "t"
size batch 1 4096
input %0: f32[batch, 4] "x"
input %1: i64[batch] "y"
input %2: f32[batch, 3, 4] "z"
param %3: f32[4, 4] "w"
param %4: f32[4] "b"
tangent %5: f32[]
)" + ops +
      fmt::format("op %{}: f32[] = aten::sum(%3, none) fwd \"\"\noutput loss %{}\n", next, next);
  auto graph = graph::parse_graph(text, "t");
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

struct Case {
  std::string ops;
  std::string forms;  ///< forms of the values from %6 on
};

/// "R", "P", "S(0)", "S(0, 3*batch)" of outer 3, "S(0, batch*64)" of inner 64.
std::string text_of(const graph::Form& form) {
  if (form.kind != graph::FormKind::kSharded) return print_form(form);
  if (form.extent != kBatch) return "not by samples: " + print_form(form);
  if (form.outer == 1 && form.inner == 1) return fmt::format("S({})", form.dim);
  return fmt::format("S({}, {}batch{})", form.dim,
                     form.outer == 1 ? "" : fmt::format("{}*", form.outer),
                     form.inner == 1 ? "" : fmt::format("*{}", form.inner));
}

/// Returns forms from %6 on, then values summed or gathered first: "P S(0) sums %6 gathers %7".
std::string forms_of(const std::string& text,
                     plan::BatchNormMode mode = plan::BatchNormMode::kGlobal) {
  // An id is followed by a colon only in its definition.
  int next = 6;
  for (std::size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 1)) {
    const std::size_t end = text.find_first_not_of("0123456789", at + 1);
    if (end != std::string::npos && text[end] == ':') ++next;
  }
  const graph::Graph graph = graph_of_forms(text, next);
  Sharding sharding;
  sharding.devices = {"0", "1"};
  sharding.shares = {7, 3};
  sharding.batch = kBatch;
  const std::vector<graph::ShardingRule> rules = spread_samples(graph, sharding, mode);
  const ShardedStep step = plan_step(graph, sharding, rules, {});
  std::string forms, changes;
  for (std::size_t v = 6; v + 1 < graph.values.size(); ++v)
    forms += (forms.empty() ? "" : " ") + text_of(step.held.homes[v]);
  for (std::size_t i = 0; i < rules.size(); ++i)
    for (std::size_t o = 0; o < rules[i].operands.size(); ++o) {
      const ValueId value = rules[i].operands[o];
      const graph::Form &home = step.home(value), &wanted = sharding.ops[i].operands[o];
      if (is_ignored(rules[i], o) || step.is_home(value, wanted)) continue;
      if (home.kind == graph::FormKind::kWhole) continue;
      const std::string change = fmt::format(
          " {} %{}", home.kind == graph::FormKind::kPartial ? "sums" : "gathers", value.value);
      if (!changes.ends_with(change)) changes += change;
    }
  return forms + changes;
}

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) EXPECT_EQ(forms_of(c.ops), c.forms) << c.ops;
}

// A partial sum: the column sums of x.
#define PARTIAL "op %6: f32[4] = aten::sum.dim_IntList(%0, [0], false, none) fwd \"\"\n"

TEST(SampleSharding, ElementwiseKeepsRowsAndSumsPartialOperands) {
  check({
      {"op %6: f32[batch, 4] = aten::relu(%0) fwd \"\"\n", "S(0)"},
      {"op %6: f32[batch, 4] = aten::add.Tensor(%0, %4, 1) fwd \"\"\n", "S(0)"},
      {"op %6: f32[4] = aten::exp(%4) fwd \"\"\n", "R"},
      {PARTIAL "op %7: f32[4] = aten::exp(%6) fwd \"\"\n", "P R sums %6"},
      {PARTIAL "op %7: f32[batch, 4] = aten::mul.Tensor(%0, %6) fwd \"\"\n", "P S(0) sums %6"},
  });
}

TEST(SampleSharding, LinearOperatorsKeepPartialSums) {
  check({
      {PARTIAL "op %7: f32[4] = aten::neg(%6) fwd \"\"\n", "P P"},
      {PARTIAL "op %7: f32[4] = aten::div.Scalar(%6, number(batch)) fwd \"\"\n", "P P"},
      {PARTIAL "op %7: f32[4] = aten::mul.Tensor(%6, %4) fwd \"\"\n", "P P"},
      {PARTIAL "op %7: f32[4] = aten::mul.Tensor(%6, %6) fwd \"\"\n", "P R sums %6"},
      {PARTIAL "op %7: f32[4] = aten::div.Tensor(%4, %6) fwd \"\"\n", "P R sums %6"},
      {PARTIAL "op %7: f32[4] = aten::add.Tensor(%6, %6, 1) fwd \"\"\n", "P P"},
      // A whole term counts once: on one device, with zeros on the others.
      {PARTIAL "op %7: f32[4] = aten::add.Tensor(%6, %4, 1) fwd \"\"\n", "P P"},
      {PARTIAL "op %7: f64[4] = aten::_to_copy(%6, dtype(f64), none, none, none, false, none) "
               "fwd \"\"\n",
       "P P"},
      {PARTIAL "op %7: bf16[4] = aten::_to_copy(%6, dtype(bf16), none, none, none, false, none) "
               "fwd \"\"\n",
       "P R sums %6"},
      {PARTIAL "op %7: f32[2, 2] = aten::view(%6, [2, 2]) fwd \"\"\n", "P P"},
      {PARTIAL "op %7: f32[batch, 4] = aten::expand(%6, [size(batch), 4], false) fwd \"\"\n",
       "P S(0) sums %6"},
  });
}

TEST(SampleSharding, ViewsFollowTheSamples) {
  check({
      // Row s*3 + t of sample s.
      {"op %6: f32[batch*3, 4] = aten::view(%2, [size(batch*3), 4]) fwd \"\"\n", "S(0, batch*3)"},
      // [T, batch, C] flattened: row t*batch + s.
      {"op %6: f32[3, batch, 4] = aten::transpose.int(%2, 0, 1) fwd \"\"\n"
       "op %7: f32[batch*3, 4] = aten::view(%6, [size(batch*3), 4]) fwd \"\"\n"
       "op %8: f32[3, batch, 4] = aten::view(%7, [3, size(batch), 4]) fwd \"\"\n",
       "S(1) S(0, 3*batch) S(1)"},
      {"op %6: f32[batch*12] = aten::view(%2, [size(batch*12)]) fwd \"\"\n", "S(0, batch*12)"},
      {"op %6: f32[4, batch] = aten::t(%0) fwd \"\"\n", "S(1)"},
      {"op %6: f32[batch, 4] = aten::select.int(%2, 1, 0) fwd \"\"\n", "S(0)"},
      {"op %6: f32[batch, 2], %7: f32[batch, 2] = aten::split.Tensor(%0, 2, 1) fwd \"\" list\n",
       "S(0) S(0)"},
      {"op %6: f32[4, 4] = aten::t(%3) fwd \"\"\n", "R"},
      {"op %6: f32[batch, 4] = aten::full([size(batch), 4], 1.0, none, none, none, none) "
       "fwd \"\"\n",
       "S(0)"},
  });
}

TEST(SampleSharding, JoiningAlongTheBatchAddsOuterBlocks) {
  check({
      {"op %6: f32[batch*2, 4] = aten::cat([%0, %0], 0) fwd \"\"\n"
       "op %7: f32[batch, 4] = aten::slice.Tensor(%6, 0, size(batch), size(batch*2), 1) fwd \"\"\n",
       "S(0, 2*batch) S(0)"},
      {"op %6: f32[batch, 8] = aten::cat([%0, %0], 1) fwd \"\"\n", "S(0)"},
      {"op %6: f32[2, batch, 4] = aten::stack([%0, %0], 0) fwd \"\"\n", "S(1)"},
      {"op %6: f32[batch, 4] = aten::slice.Tensor(%0, 0, 0, 9223372036854775807, 1) fwd \"\"\n",
       "S(0)"},
  });
}

TEST(SampleSharding, ProductsContractSamplesIntoPartialSums) {
  check({
      {"op %6: f32[batch, 4] = aten::mm(%0, %3) fwd \"\"\n", "S(0)"},
      {"op %6: f32[4, batch] = aten::t(%0) fwd \"\"\n"
       "op %7: f32[4, 4] = aten::mm(%6, %0) fwd \"\"\n"
       "op %8: f32[4, batch] = aten::mm(%3, %6) fwd \"\"\n"
       "op %9: f32[4, 4] = aten::mm(%7, %3) fwd \"\"\n",
       "S(1) P S(1) P"},
      {"op %6: f32[batch, 4] = aten::addmm(%4, %0, %3, 1, 1) fwd \"\"\n", "S(0)"},
      {"op %6: f32[batch, 4, 3] = aten::transpose.int(%2, 1, 2) fwd \"\"\n"
       "op %7: f32[batch, 3, 3] = aten::bmm(%2, %6) fwd \"\"\n",
       "S(0) S(0)"},
  });
}

TEST(SampleSharding, ReductionsOverTheBatch) {
  check({
      {"op %6: f32[] = aten::sum(%0, none) fwd \"\"\n", "P"},
      {"op %6: f32[batch] = aten::sum.dim_IntList(%0, [-1], false, none) fwd \"\"\n", "S(0)"},
      {"op %6: f32[] = aten::mean(%0, none) fwd \"\"\n", "P"},
      {"op %6: f32[batch] = aten::amax(%0, [1], false) fwd \"\"\n", "S(0)"},
      {"op %6: f32[batch, 4] = aten::_softmax(%0, 1, false) fwd \"\"\n", "S(0)"},
      {PARTIAL "op %7: f32[] = aten::sum(%6, none) fwd \"\"\n", "P P"},
  });
}

TEST(SampleSharding, GradientsOfWeightsArePartial) {
  check({
      {"op %6: f32[batch, 4], %7: f32[batch, 1], %8: f32[batch, 1] = aten::native_layer_norm(%0, "
       "[4], %4, %4, 1e-05) fwd \"\"\n"
       "op %9: f32[batch, 4], %10: f32[4], %11: f32[4] = aten::native_layer_norm_backward(%6, %0, "
       "[4], %7, %8, %4, %4, [true, true, true]) bwd \"\"\n",
       "S(0) S(0) S(0) S(0) P P"},
      {"op %6: f32[batch, 4] = aten::embedding(%3, %1, -1, false, false) fwd \"\"\n"
       "op %7: f32[4, 4] = aten::embedding_dense_backward(%6, %1, 4, -1, false) bwd \"\"\n",
       "S(0) P"},
      {"op %6: f32[4, 4] = aten::zeros([4, 4], none, none, none, none) bwd \"\"\n"
       "op %7: f32[4, 4] = aten::index_put(%6, [%1], %0, true) bwd \"\"\n",
       "R P"},
  });
}

TEST(SampleSharding, MeanLossesDivideByTheGlobalCount) {
  check({
      {"op %6: f32[], %7: f32[] = aten::nll_loss_forward(%0, %1, none, 1, -100) fwd \"\"\n"
       "op %8: f32[batch, 4] = aten::nll_loss_backward(%5, %0, %1, none, 1, -100, %7) bwd \"\"\n",
       "P R S(0)"},
      {"op %6: f32[] = aten::mse_loss(%0, %0, 1) fwd \"\"\n"
       "op %7: f32[batch, 4] = aten::mse_loss_backward(%5, %0, %0, 1) bwd \"\"\n",
       "P S(0)"},
  });
}

constexpr char kBatchNorm[] =
    "op %6: f32[batch, 4], %7: f32[4], %8: f32[4], %9: f32[4], %10: f32[4] = "
    "aten::_native_batch_norm_legit_functional(%0, %4, %4, %4, %4, true, 0.1, 1e-05) fwd \"\"\n"
    "op %11: f32[batch, 4], %12: f32[4], %13: f32[4] = aten::native_batch_norm_backward(%6, %0, "
    "%4, %9, %10, %7, %8, true, 1e-05, [true, true, true]) bwd \"\"\n";

TEST(SampleSharding, BatchNormIsGlobalOrLocal) {
  EXPECT_EQ(forms_of(kBatchNorm), "S(0) R R R R S(0) R R");
  // The saved statistics are each device's own; see graph/rules.
  EXPECT_EQ(forms_of(kBatchNorm, plan::BatchNormMode::kLocal), "S(0) R R P P S(0) P P");
}

TEST(SampleSharding, RowNumbersIndexTheirOwnRows) {
  check(
      {{"op %6: i64[batch] = aten::arange(size(batch), none, none, none, none) fwd \"\"\n"
        "op %7: f32[batch] = aten::index.Tensor(%0, [%6, %1]) fwd \"\"\n",
        "S(0) S(0)"}});
}

TEST(SampleSharding, WhatMixesSamplesRunsWhole) {
  check({
      {"op %6: f32[batch, 4] = aten::cumsum(%0, 0, none) fwd \"m\"\n", "R gathers %0"},
      {"op %6: f32[4] = aten::amax(%0, [0], false) fwd \"m\"\n", "R gathers %0"},
      {"op %6: f32[batch, 4] = aten::fft_fft(%0) fwd \"m\"\n", "R gathers %0"},
      {"op %6: f32[batch, 4] = aten::index.Tensor(%0, [%1]) fwd \"m\"\n", "S(0) gathers %0"},
      {"op %6: f32[3, 4] = aten::slice.Tensor(%0, 0, 0, 3, 1) fwd \"m\"\n", "R gathers %0"},
  });
}

TEST(SampleSharding, OneDeviceHasAllOfEverything) {
  const graph::Graph graph =
      graph_of_forms("op %6: f32[batch, 4] = aten::unheard_of(%0) fwd \"\"\n", 7);
  Sharding sharding;
  sharding.devices = {"0"};
  sharding.shares = {5};
  sharding.batch = 5;
  spread_samples(graph, sharding);
  for (const graph::Strategy& way : sharding.ops) EXPECT_EQ(way.factor, -1);
  for (const graph::Form& form : sharding.sources) EXPECT_EQ(form, graph::kWholeForm);
}

}  // namespace
}  // namespace motley::synth
