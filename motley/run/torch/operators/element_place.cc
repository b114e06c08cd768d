#include "motley/run/torch/operators/element_place.h"

#include <ATen/ops/arange.h>

namespace motley::run {

at::Tensor global_indices(const ElementPlace& place, std::int64_t elements, at::Device device) {
  const auto options = at::TensorOptions(device).dtype(at::kLong);
  const std::int64_t row = elements / place.outer;
  const at::Tensor in_row = at::arange(row, options).add_(place.first * place.inner);
  const at::Tensor rows = at::arange(place.outer, options).mul_(place.global * place.inner);
  const at::Tensor here = rows.unsqueeze(1).add(in_row).flatten();
  if (place.micro_batches == 1) return here;
  return here.div(place.run, "floor")
      .mul_(place.micro_batches)
      .add_(place.micro_batch)
      .mul_(place.run)
      .add_(here.remainder(place.run));
}

}  // namespace motley::run
