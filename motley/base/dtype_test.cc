#include "motley/base/dtype.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(DType, NamesReadBack) {
  for (int i = 0; i <= static_cast<int>(DType::kNone); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(find_dtype(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(find_dtype("f31"), std::nullopt);
}

TEST(DType, KnowsSizeAndKind) {
  EXPECT_EQ(dtype_size(DType::kF64), 8);
  EXPECT_EQ(dtype_size(DType::kBF16), 2);
  EXPECT_EQ(dtype_size(DType::kBool), 1);
  EXPECT_EQ(dtype_size(DType::kNone), 0);
  EXPECT_TRUE(is_floating(DType::kBF16));
  EXPECT_FALSE(is_floating(DType::kI64));
  EXPECT_FALSE(is_floating(DType::kNone));
}

TEST(DType, ComplexNumbersAreTwoRealOnes) {
  EXPECT_EQ(dtype_size(DType::kC64), 2 * dtype_size(DType::kF32));
  EXPECT_EQ(dtype_size(DType::kC128), 2 * dtype_size(DType::kF64));
  EXPECT_TRUE(is_complex(DType::kC64));
  EXPECT_FALSE(is_floating(DType::kC64));
  EXPECT_FALSE(is_complex(DType::kF64));
  EXPECT_FALSE(is_complex(DType::kNone));
}

}  // namespace
}  // namespace motley
