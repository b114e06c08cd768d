#pragma once

#include <cstdint>

#include "motley/base/units.h"

namespace motley::peers {

struct GpuKernel {
  Flops flops;             ///< 0 for element-wise kernels
  double bytes = 0;        ///< read from and written to device memory
  bool is_aligned = true;  ///< rows of its matrices are multiples of 16 bytes
  bool operator==(const GpuKernel&) const = default;
};

/// Counts `batch` products of m x k and k x n in 2-byte elements: 2 m n k flops; reads both
/// operands and writes the result once. Tensor cores need rows of 8 elements: NVIDIA, Matrix
/// Multiplication Background User's Guide, "Requirements to Use Tensor Cores".
GpuKernel gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1);
GpuKernel element_wise(double bytes);

struct KernelRates {
  Seconds launch;               ///< least time of a kernel, in which the host starts the next
  double flops_per_second = 0;  ///< of GEMMs; > 0
  BytesPerSecond memory;        ///< > 0
  double unaligned_share = 1;   ///< of flops_per_second for unaligned GEMMs; > 0
  bool operator==(const KernelRates&) const = default;
};

/// Returns the time of a kernel, (launch^4 + work^4)^(1/4) with work = max(flops / rate, bytes /
/// memory). The 4-norm is the larger of the two except near their crossing, where it is 19 % more.
/// It assumes no queue ahead of the device: each kernel pays its launch, as in traces.
///
/// Example: launch 40 us, 200 TFLOP/s, 1.6 TB/s: gemm(1024, 1024, 1024) has 10.7 us of flops and
/// 3.9 us of bytes, and takes 40.05 us.
Seconds kernel_time(const GpuKernel& kernel, const KernelRates& rates);

}  // namespace motley::peers
