#include "motley/graph/work.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "motley/base/file.h"
#include "motley/graph/graph_text.h"
#include "motley/testing/places.h"

namespace motley::graph {
namespace {

/// Returns the work at batch 2 of an operator on leaves "f32[2, 3]" from %0 on; an input comes
/// last.
Work work_of(const std::vector<std::string>& leaves, const std::string& results_and_call) {
  std::string text = "motley.graph/1\nname \"one\"\nsize batch 1 64\n";
  std::size_t id = 0;
  for (const std::string& leaf : leaves) {
    text += "input %" + std::to_string(id) + ": " + leaf + " \"x" + std::to_string(id) + "\"\n";
    ++id;
  }
  text += "op " + results_and_call + " fwd \"\"\n";
  const std::string loss =
      std::to_string(id + static_cast<std::size_t>(
                              std::count(text.begin() + static_cast<long>(text.find("op ")),
                                         text.begin() + static_cast<long>(text.find(" = ")), '%')));
  text += "op %" + loss + ": f32[] = aten::loss() fwd \"\"\noutput loss %" + loss + "\n";
  const auto graph = parse_graph(text, "one");
  EXPECT_TRUE(graph) << graph.error().message << "\n" << text;
  return op_work(*graph, OpId(0), {{"batch", 2}});
}

void expect(const Work& work, double flops, std::int64_t read, std::int64_t written) {
  EXPECT_EQ(work.flops.value, flops);
  EXPECT_EQ(work.bytes_read.value, read);
  EXPECT_EQ(work.bytes_written.value, written);
}

// 2*5 results of 3 products and sums each: 2 * 10 * 3 = 60. (Dimension 0 of an input is the batch,
// so the second factor has 2 rows here instead of 3; flops follow the first factor and the result.)
TEST(Work, MatrixProduct) {
  expect(work_of({"f32[batch, 3]", "f32[batch, 5]"}, "%2: f32[batch, 5] = aten::mm(%0, %1)"), 60,
         4 * (6 + 10), 4 * 10);
}

// As above; the bias is read, and its addition is part of the product's 60.
TEST(Work, AddedMatrixProduct) {
  expect(work_of({"f32[batch]", "f32[batch, 3]", "f32[batch, 5]"},
                 "%3: f32[batch, 5] = aten::addmm(%0, %1, %2, 1, 1)"),
         60, 4 * (2 + 6 + 10), 4 * 10);
}

// 2 products of [3, 4] by [4, 5]: 2 * 2 * 3 * 5 * 4 = 240.
TEST(Work, BatchedMatrixProduct) {
  expect(
      work_of({"f32[batch, 3, 4]", "f32[batch, 4, 5]"}, "%2: f32[batch, 3, 5] = aten::bmm(%0, %1)"),
      240, 4 * (24 + 40), 4 * 30);
  expect(work_of({"f32[batch, 3, 5]", "f32[batch, 3, 4]", "f32[batch, 4, 5]"},
                 "%3: f32[batch, 3, 5] = aten::baddbmm(%0, %1, %2, 1, 1)"),
         240, 4 * (30 + 24 + 40), 4 * 30);
}

// Input [2, 4, 8, 8], weight [2, 2, 3, 3] (2 results, 4 inputs in 2 groups), result [2, 2, 6, 6]:
// 2*2*36 = 144 results of 2*3*3 = 18 products and sums: 2 * 144 * 18 = 5184.
TEST(Work, GroupedConvolution) {
  expect(
      work_of({"f32[batch, 4, 8, 8]", "f32[batch, 2, 3, 3]"},
              "%2: f32[batch, 2, 6, 6] = aten::convolution(%0, %1, none, [1, 1], [0, 0], [1, 1], "
              "false, [0, 0], 2)"),
      5184, 4 * (512 + 36), 4 * 144);
}

// Transposed: input [2, 2, 6, 6], weight [2, 3, 3, 3] (2 inputs, 3 results), result [2, 3, 8, 8]:
// each of the 144 input elements goes into 3*3*3 = 27 products and sums: 2 * 144 * 27 = 7776.
TEST(Work, TransposedConvolution) {
  expect(
      work_of({"f32[batch, 2, 6, 6]", "f32[batch, 3, 3, 3]"},
              "%2: f32[batch, 3, 8, 8] = aten::convolution(%0, %1, none, [1, 1], [0, 0], [1, 1], "
              "true, [0, 0], 1)"),
      7776, 4 * (144 + 54), 4 * 384);
}

// The grouped convolution above costs 5184. The gradients of input and weight cost the same each;
// that of the bias sums the 144 elements of the incoming gradient.
TEST(Work, ConvolutionBackwardFollowsItsOutputMask) {
  const auto backward = [](const std::string& mask, const std::string& results) {
    return work_of({"f32[batch, 2, 6, 6]", "f32[batch, 4, 8, 8]", "f32[batch, 2, 3, 3]"},
                   results +
                       " = aten::convolution_backward(%0, %1, %2, [2], [1, 1], [0, 0], [1, 1], "
                       "false, [0, 0], 2, " +
                       mask + ")");
  };
  const std::int64_t read = 4 * (144 + 512 + 36);
  expect(backward("[true, true, true]", "%3: f32[batch, 4, 8, 8], %4: f32[2, 2, 3, 3], %5: f32[2]"),
         2 * 5184 + 144, read, 4 * (512 + 36 + 2));
  expect(backward("[false, true, false]", "%3: none, %4: f32[2, 2, 3, 3], %5: none"), 5184, read,
         4 * 36);
}

// q [2, 3, 4, 8], k [2, 3, 5, 8], v [2, 3, 5, 6]. Scores: 2*3*4*5 = 120 of 8 products and sums,
// 1920; times v: 2*3*4*6 = 144 of 5, 1440. Backward: scores, gradients of q and k: 3 * 1920; of
// probabilities and v: 2 * 1440.
TEST(Work, Attention) {
  const std::vector<std::string> leaves = {"f32[batch, 3, 4, 8]", "f32[batch, 3, 5, 8]",
                                           "f32[batch, 3, 5, 6]", "f32[batch, 3, 4, 6]",
                                           "f32[batch, 3, 4]"};
  expect(work_of(leaves,
                 "%5: f32[batch, 3, 4, 6], %6: f32[batch, 3, 4] = motley::attention(%0, %1, %2, "
                 "none, 0.0, true, none)"),
         1920 + 1440, 4 * (192 + 240 + 180), 4 * (144 + 24));
  expect(work_of(leaves,
                 "%5: f32[batch, 3, 4, 8], %6: f32[batch, 3, 5, 8], %7: f32[batch, 3, 5, 6] = "
                 "motley::attention_backward(%3, %0, %1, %2, %3, %4, none, 0.0, true, none)"),
         3 * 1920 + 2 * 1440, 4 * (144 + 192 + 240 + 180 + 24), 4 * (192 + 240 + 180));
}

// 2 transforms of 8 x 4 numbers: 64 real ones at 2.5 log2(32) = 12.5 each, complex ones at 25. The
// real transform keeps 3 of the 4 frequencies of the last dimension: 48 complex numbers of 8 bytes.
TEST(Work, FourierTransforms) {
  expect(
      work_of({"f32[batch, 8, 4]"}, "%1: c64[batch, 8, 3] = aten::_fft_r2c(%0, [1, 2], 0, true)"),
      800, 4 * 64, 8 * 48);
  expect(
      work_of({"f32[batch, 8, 4]"}, "%1: c64[batch, 8, 4] = aten::_fft_c2c(%0, [1, 2], 0, true)"),
      1600, 4 * 64, 8 * 64);
}

// 12 elements in, 12 out: one operation each. The same tensor twice is read once.
TEST(Work, ElementwiseCountsElements) {
  expect(work_of({"f32[batch, 6]"}, "%1: f32[batch, 6] = aten::mul.Tensor(%0, %0)"), 12, 48, 48);
}

// A sum touches its 12 inputs for 2 results; lists of tensors count too.
TEST(Work, ReductionsCountTheirInput) {
  expect(work_of({"f32[batch, 6]"}, "%1: f32[2] = aten::sum.dim_IntList(%0, [1], false, none)"), 12,
         48, 8);
}

TEST(Work, MovementHasBytesOnly) {
  expect(
      work_of({"f32[batch, 6]", "bf16[batch, 6]"}, "%2: f32[batch, 12] = aten::cat([%0, %1], 1)"),
      0, 48 + 24, 96);
  // Two rows of 6 are read through two indices, not the table.
  expect(work_of({"f32[batch, 600]", "i64[batch]"},
                 "%2: f32[batch, 6] = aten::embedding(%0, %1, -1, false, false)"),
         0, 48 + 16, 48);
}

TEST(Work, ViewsAreFree) {
  expect(work_of({"f32[batch, 6]"}, "%1: f32[6, batch] = aten::t(%0)"), 0, 0, 0);
  expect(work_of({"f32[batch, 6]"},
                 "%1: f32[batch, 3], %2: f32[batch, 3] = aten::split.Tensor(%0, 3, 1)"),
         0, 0, 0);
}

// Operators that do not match their schema count by elements.
TEST(Work, MalformedOperatorsAreCountedByElements) {
  expect(work_of({"f32[batch, 6]"}, "%1: f32[batch, 6] = aten::mm()"), 12, 0, 48);
  expect(work_of({"f32[batch]", "f32[batch, 0]"}, "%2: f32[2] = aten::convolution(%0, none)"), 2, 8,
         8);
}

// The golden MLP at batch 1: products of 12 by 32 and 32 by 5, once forward and once for the
// gradients of the weights, and backward only through the second, because the input takes no
// gradient: 2 * (2 * (384 + 160) + 160) = 2496. Others by elements: relu and its backward 32 each,
// sums of gradients 5 and 32, log-softmax and loss with their backwards 5 each: 64 + 37 + 20 = 121.
TEST(Work, TotalOfAnMlp) {
  const std::string path = testing::source_path("tests/golden/graph/mlp.txt");
  const Graph graph = *parse_graph(*read_file(path), path);
  EXPECT_EQ(total_work(graph, {{"batch", 1}}).flops.value, 2496 + 121);
}

TEST(IsView, KnowsOperatorsWithAndWithoutOverload) {
  for (const char* name :
       {"aten::view", "aten::t", "aten::transpose.int", "aten::permute", "aten::expand",
        "aten::slice.Tensor", "aten::select.int", "aten::squeeze.dims", "aten::unsqueeze",
        "aten::split_with_sizes", "aten::unbind.int", "aten::as_strided", "aten::diagonal"}) {
    EXPECT_TRUE(is_view(name)) << name;
  }
  for (const char* name :
       {"aten::clone", "aten::mm", "aten::slice_backward", "motley::attention"}) {
    EXPECT_FALSE(is_view(name)) << name;
  }
}

}  // namespace
}  // namespace motley::graph
