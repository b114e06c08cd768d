#include "motley/cost/layers/layer_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/graph/graph_text.h"

namespace motley::cost {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// Two layers of 1 and 2 s. On a member of t the first has 100 + 800 / t bytes of weights and keeps
/// 40 / t bytes per sample; the second is not split. Each outputs 80 bytes.
LayerProfile small_profile() {
  LayerProfile profile{.model = "small"};
  for (const int degree : {1, 2, 4}) {
    profile.times["a"][degree][2] = {{Seconds(2), Seconds(4), Seconds(0.5)},
                                     {Seconds(4), Seconds(8), Seconds(0.5)}};
    const Bytes first(100 + 800 / degree);
    profile.sizes[degree] = {{1, first, first * 4, Bytes(40 / degree), Bytes(80)},
                             {1, Bytes(60), Bytes(240), Bytes(20), Bytes(80)}};
  }
  return profile;
}

TEST(LayerGraph, HasAnOperatorALayerAndPass) {
  const auto made = make_layer_graph(small_profile());
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->rows, 4);
  EXPECT_NEAR(made->misfit, 0, 1e-12);
  EXPECT_TRUE(is_layer_graph(made->graph));
  // 800 bytes are 4 rows of 50 numbers, 100 bytes are 25; kept are 4 rows of 3 (2.5), and at least
  // one number of the whole part. A micro-batch of 2 samples takes 2 s: work 1e13 per sample.
  EXPECT_EQ(graph::print_graph(made->graph), R"(motley.graph/1
name "small"
size batch 1 65536
input %0: i64[batch, 1] "samples"
param %1: f32[4, 50] "layers.0.split"
param %2: f32[25] "layers.0.whole"
param %3: f32[4, 1] "layers.1.split"
param %4: f32[15] "layers.1.whole"
tangent %5: f32[]
op %6: f32[batch, 20], %7: f32[batch, 4, 3], %8: f32[batch, 1] = motley::layer(%0, [%1, %2], 0, 10000000000000.0) fwd "layers.0" seq 0
op %9: f32[batch, 20] = aten::view(%6, [size(batch), 20]) fwd "layers.0" seq 0
op %10: f32[batch, 1], %11: f32[batch, 4, 1], %12: f32[batch, 5] = motley::layer(%9, [%3, %4], 1, 20000000000000.0) fwd "layers.1" seq 1
op %13: f32[] = aten::sum(%10, none) fwd "loss" seq 2
op %14: f32[batch, 1] = aten::expand(%5, [size(batch), 1], false) bwd "loss" seq 2
op %15: f32[batch, 20], %16: f32[4, 1], %17: f32[15] = motley::layer_backward(%14, [%3, %4], %11, %12, 1, 40000000000000.0) bwd "layers.1" seq 1
op %18: none, %19: f32[4, 50], %20: f32[25] = motley::layer_backward(%15, [%1, %2], %7, %8, 0, 20000000000000.0) bwd "layers.0" seq 0
output loss %13
output gradient %19 of "layers.0.split"
output gradient %20 of "layers.0.whole"
output gradient %16 of "layers.1.split"
output gradient %17 of "layers.1.whole"
)");
}

// The head's weights are the embedding's: both read them, and their gradients are summed.
TEST(LayerGraph, TiedLayersReadTheSameWeights) {
  LayerProfile profile = small_profile();
  profile.tied = {0, 1};
  const auto made = make_layer_graph(profile);
  ASSERT_TRUE(made) << made.error().message;
  const std::string text = graph::print_graph(made->graph);
  // 100 bytes minus the shared 60.
  EXPECT_THAT(text, HasSubstr("param %2: f32[10] \"layers.0.whole\""));
  EXPECT_THAT(text, HasSubstr("motley::layer(%0, [%1, %3, %4, %2], 0, "));
  EXPECT_THAT(text, HasSubstr("f32[15] = aten::add.Tensor("));
}

TEST(LayerGraph, StateBeyondAdamIsABuffer) {
  LayerProfile profile = small_profile();
  EXPECT_THAT(graph::print_graph(make_layer_graph(profile)->graph), Not(HasSubstr("buffer")));
  for (auto& [degree, sizes] : profile.sizes) sizes[1].states += Bytes(400 / degree);
  EXPECT_THAT(graph::print_graph(make_layer_graph(profile)->graph),
              HasSubstr("buffer %5: f32[4, 25] \"layers.1.rest\""));
}

// At degree 2 the first layer has 500 bytes by degrees 1 and 4, the profile 520.
TEST(LayerGraph, SaysHowFarBytesAreOff) {
  LayerProfile profile = small_profile();
  profile.sizes[2][0].gradients = Bytes(520);
  EXPECT_NEAR(make_layer_graph(profile)->misfit, 1 - 500.0 / 520, 1e-12);
}

TEST(LayerGraph, WantsBytes) {
  LayerProfile profile = small_profile();
  profile.sizes.clear();
  EXPECT_EQ(make_layer_graph(profile).error().message, "small: no bytes of its layers");
}

TEST(LayerGraph, ParametersSayTheirLayer) {
  EXPECT_EQ(layer_of_parameter("layers.12.split"), 12);
  EXPECT_EQ(layer_of_parameter("fc.weight"), std::nullopt);
}

}  // namespace
}  // namespace motley::cost
