#include "motley/cost/operators/scratch_model.h"

#include <gtest/gtest.h>

namespace motley::cost {
namespace {

OpEntry needing(const std::string& key, double bytes, std::int64_t scratch) {
  OpEntry made{{"cpu", 1, "2.15"}, key, Seconds(1e-6), 0.05, 9};
  made.work = {0, bytes, 1};
  made.scratch = Bytes(scratch);
  return made;
}

Bytes says(const std::vector<OpEntry>& entries, DType reads, double bytes) {
  return ScratchModel(entries).scratch("aten::sum", dtypes_with(0, reads), {0, bytes, 1});
}

TEST(ScratchModel, WhatIsFixedStaysFixed) {
  std::vector<OpEntry> entries;
  for (const double bytes : {33.0, 1000.0, 40000.0})
    entries.push_back(needing("aten::sum(f32[8])", bytes, 12));
  EXPECT_EQ(says(entries, DType::kF32, 1e9), Bytes(12));
  EXPECT_EQ(says(entries, DType::kF32, 5000), Bytes(12));
}

TEST(ScratchModel, WhatIsInProportionStaysSo) {
  std::vector<OpEntry> entries;
  for (const double bytes : {100.0, 1000.0, 40000.0})
    entries.push_back(needing("aten::sum(f32[8])", bytes, static_cast<std::int64_t>(4 * bytes)));
  EXPECT_EQ(says(entries, DType::kF32, 1e6), Bytes(4000000));
}

// 100 + 2 b passes through both, and holds between and beyond. 150 at 1000 is below and acts only
// near it: 2.1 bytes per byte of the line at weight 1/4 and 0.15 at weight 1 give 0.54.
TEST(ScratchModel, TheLineLiesOverAll) {
  const std::vector<OpEntry> entries = {needing("aten::sum(f32[8])", 50, 200),
                                        needing("aten::sum(f32[8])", 1000, 150),
                                        needing("aten::sum(f32[8])", 20000, 40100)};
  EXPECT_EQ(says(entries, DType::kF32, 1e6), Bytes(2000100));
  EXPECT_EQ(says(entries, DType::kF32, 1000), Bytes(540));
}

TEST(ScratchModel, TruthValuesSayNothingOfFloats) {
  const std::vector<OpEntry> entries = {
      needing("aten::sum([bool[100]], dtype(f32), none)", 100, 400),
      needing("aten::sum(f32[8])", 40, 0)};
  EXPECT_EQ(says(entries, DType::kF32, 1e6), Bytes(0));
  EXPECT_EQ(says(entries, DType::kBool, 1e6), Bytes(4000000));
  // No operator with 16-bit inputs was measured: uses any dtype.
  EXPECT_EQ(says(entries, DType::kBF16, 1e6), Bytes(4000000));
  EXPECT_EQ(ScratchModel(entries).scratch("aten::cosh", dtypes_with(0, DType::kF32), {0, 1e6, 1}),
            Bytes(0));
}

TEST(ScratchModel, WhatIsCountedHasItsDtypeToo) {
  const ScratchModel model({needing("motley::pack(bf16, 20 elements, 2 tensors)", 80, 40),
                            needing("motley::pack(f32, 20 elements, 2 tensors)", 160, 0)});
  EXPECT_EQ(model.scratch("motley::pack", dtypes_with(0, DType::kBF16), {0, 1600, 1}), Bytes(800));
  EXPECT_EQ(model.scratch("motley::pack", dtypes_with(0, DType::kF32), {0, 1600, 1}), Bytes(0));
}

// Halves are converted to floats before they are added to floats; floats are added directly.
TEST(ScratchModel, WhatReadsSeveralDtypesIsApart) {
  const ScratchModel model({needing("aten::add.Tensor(f32[4], bf16[4], 1)", 40, 16),
                            needing("aten::add.Tensor(f32[4], f32[4], 1)", 48, 0)});
  const DTypes floats = dtypes_with(0, DType::kF32);
  EXPECT_EQ(model.scratch("aten::add.Tensor", floats, {0, 480, 1}), Bytes(0));
  EXPECT_EQ(model.scratch("aten::add.Tensor", dtypes_with(floats, DType::kBF16), {0, 400, 1}),
            Bytes(160));
}

}  // namespace
}  // namespace motley::cost
