#include "motley/run/torch/operators/element_place.h"

#include <ATen/ops/arange.h>

namespace motley::run {

at::Tensor global_indices(const ElementPlace& place, std::int64_t elements, at::Device device) {
  return global_indices(place, elements, 0, elements, device);
}

at::Tensor global_indices(const ElementPlace& place, std::int64_t elements, std::int64_t begin,
                          std::int64_t end, at::Device device) {
  const at::Tensor local = at::arange(begin, end, at::TensorOptions(device).dtype(at::kLong));
  const std::int64_t row = elements / place.outer;
  const at::Tensor here = place.outer == 1 ? local.add(place.first * place.inner)
                                           : local.div(row, "floor")
                                                 .mul_(place.global * place.inner)
                                                 .add_(local.remainder(row))
                                                 .add_(place.first * place.inner);
  if (place.micro_batches == 1) return here;
  return here.div(place.run, "floor")
      .mul_(place.micro_batches)
      .add_(place.micro_batch)
      .mul_(place.run)
      .add_(here.remainder(place.run));
}

}  // namespace motley::run
