#include "peers/steps/kernel_time.h"

#include <gtest/gtest.h>

#include <cmath>

namespace motley::peers {
namespace {

const KernelRates kRates = {Seconds(40e-6), 200e12, BytesPerSecond(1.6e12), 0.25};

TEST(KernelTime, CountsAGemm) {
  // 3 products of 16 x 8 and 8 x 24: 2 * 3 * 16 * 24 * 8 flops; 3 (128 + 192 + 384) elements.
  const GpuKernel kernel = gemm(16, 24, 8, 3);
  EXPECT_EQ(kernel.flops.value, 18432);
  EXPECT_EQ(kernel.bytes, 2 * 3 * 704);
  EXPECT_TRUE(kernel.is_aligned);
  EXPECT_FALSE(gemm(16, 25, 8).is_aligned);
}

TEST(KernelTime, TheLargestOfLaunchFlopsAndBytesCounts) {
  // 2^33 flops at 200 TFLOP/s: 42.9 ms, far from the launch.
  const GpuKernel large = {Flops(8.589934592e12), 0, true};
  EXPECT_NEAR(kernel_time(large, kRates).value, 42.949673e-3, 1e-9);
  // 1.6e9 bytes at 1.6 TB/s: 1 ms.
  EXPECT_NEAR(kernel_time(element_wise(1.6e9), kRates).value, 1e-3, 1e-8);
  EXPECT_DOUBLE_EQ(kernel_time(element_wise(0), kRates).value, 40e-6);
}

TEST(KernelTime, WorkAsLongAsTheLaunchTakesTheFourthRootOfTwo) {
  EXPECT_NEAR(kernel_time(element_wise(64e6), kRates).value, 40e-6 * std::pow(2, 0.25), 1e-12);
}

TEST(KernelTime, AnUnalignedGemmIsSlower) {
  // A quarter of the rate: 4 * 42.9 ms.
  const GpuKernel unaligned = {Flops(8.589934592e12), 0, false};
  EXPECT_NEAR(kernel_time(unaligned, kRates).value, 171.798692e-3, 1e-9);
}

}  // namespace
}  // namespace motley::peers
