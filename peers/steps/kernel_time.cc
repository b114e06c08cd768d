#include "peers/steps/kernel_time.h"

#include <algorithm>
#include <cmath>

namespace motley::peers {
namespace {

constexpr double kHalfBytes = 2;
constexpr std::int64_t kAlignment = 8;  // elements

double to_fourth(double x) { return x * x * (x * x); }

}  // namespace

GpuKernel gemm(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch) {
  const auto rows = static_cast<double>(m), columns = static_cast<double>(n);
  const auto inner = static_cast<double>(k), count = static_cast<double>(batch);
  return {Flops(2 * count * rows * columns * inner),
          kHalfBytes * count * (rows * inner + inner * columns + rows * columns),
          m % kAlignment == 0 && n % kAlignment == 0 && k % kAlignment == 0};
}

GpuKernel element_wise(double bytes) { return {Flops(0), bytes, true}; }

Seconds kernel_time(const GpuKernel& kernel, const KernelRates& rates) {
  const double rate = rates.flops_per_second * (kernel.is_aligned ? 1 : rates.unaligned_share);
  const double work = std::max(kernel.flops.value / rate, kernel.bytes / rates.memory.value);
  return Seconds(std::sqrt(std::sqrt(to_fourth(rates.launch.value) + to_fourth(work))));
}

}  // namespace motley::peers
