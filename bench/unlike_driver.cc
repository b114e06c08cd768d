// Ns per element of PyTorch's fused update and ours: lines "OPTIMIZER ELEMENTS FUSED OURS".
#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "motley/run/torch/operators/element_update.h"

namespace motley::run {
namespace {

constexpr std::int64_t kUpdatesOf = 1 << 23;  // elements per timing
constexpr int kTimings = 9;

double time_once(const std::function<void()>& update, std::int64_t elements) {
  const std::int64_t times = std::max<std::int64_t>(1, kUpdatesOf / elements);
  const auto begin = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < times; ++i) update();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count() * 1e9 / static_cast<double>(times * elements);
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void compare(const char* name, std::int64_t elements, const std::function<void()>& fused,
             const std::function<void()>& ours) {
  std::vector<double> of_fused, of_ours;
  for (int i = 0; i < kTimings; ++i) {
    of_fused.push_back(time_once(fused, elements));
    of_ours.push_back(time_once(ours, elements));
  }
  fmt::print("{} {} {:.3f} {:.3f}\n", name, elements, median(of_fused), median(of_ours));
}

void run() {
  at::set_num_threads(1);
  for (const std::int64_t elements : {1 << 14, 1 << 18, 1 << 24}) {
    const auto draw = [&] { return std::vector<at::Tensor>{at::rand({elements})}; };
    const ElementTensors adam{draw(), draw(), draw(), draw()};
    const std::vector<at::Tensor> counts = {at::full({}, 5.0F)};
    compare(
        "adamw", elements,
        [&] {
          at::_fused_adamw_(adam.parameters, adam.gradients, adam.state1, adam.state2, {}, counts,
                            1e-3, 0.9, 0.999, 0.01, 1e-8, /*amsgrad=*/false, /*maximize=*/false,
                            std::nullopt, std::nullopt);
        },
        [&] {
          update_elements(adam, {ElementKind::kAdamW, 1e-3, 0.01, 5, {0.9, 0.999, 1e-8}});
        });
    const ElementTensors sgd{adam.parameters, adam.gradients, adam.state1};
    compare(
        "sgd", elements,
        [&] {
          at::_fused_sgd_(sgd.parameters, sgd.gradients, sgd.state1, 0.0, 0.9, 1e-3,
                          /*dampening=*/0.0, /*nesterov=*/false, /*maximize=*/false,
                          /*is_first_step=*/false, std::nullopt, std::nullopt);
        },
        [&] {
          update_elements(sgd, {ElementKind::kSgd, 1e-3, 0.0, 5, {0.9, 0.0}});
        });
  }
}

}  // namespace
}  // namespace motley::run

int main() { motley::run::run(); }
