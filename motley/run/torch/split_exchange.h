#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "motley/run/torch/communicator.h"

namespace motley::run {

/// The uneven collectives through a library's all-to-all with splits, for which every member sends
/// and receives just its bytes. `exchange(out, in, receives, sends)` is given flat byte tensors and
/// counts of bytes, by value: c10d moves out of them. Inline, because the CUDA library uses it too.
template <typename Exchange>
void exchange_by_splits(const Exchange& exchange, const Splits& splits, const at::Tensor& in,
                        at::Tensor& out) {
  const auto bytes_of = [&](Counts counts) {
    for (std::int64_t& count : counts) count *= static_cast<std::int64_t>(in.element_size());
    return counts;
  };
  at::Tensor target = out.view(at::kByte), source = in.view(at::kByte);
  exchange(target, source, bytes_of(splits.receives), bytes_of(splits.sends));
}

/// The own part goes to everybody: a copy for each, of which the library sends all but one.
template <typename Exchange>
void gather_by_splits(const Exchange& exchange, const Counts& counts, const at::Tensor& part,
                      at::Tensor& all) {
  const auto members = static_cast<std::int64_t>(counts.size());
  const Counts sends(counts.size(), part.numel());
  exchange_by_splits(exchange, {sends, counts}, part.repeat({members}), all);
}

/// Every member gets all addends of its part, and adds them up in the order of the members.
template <typename Exchange>
void reduce_scatter_by_splits(const Exchange& exchange, const Counts& counts, const at::Tensor& all,
                              at::Tensor& part) {
  const auto members = static_cast<std::int64_t>(counts.size());
  const Counts receives(counts.size(), part.numel());
  at::Tensor addends = at::empty({members * part.numel()}, all.options());
  exchange_by_splits(exchange, {counts, receives}, all, addends);
  const bool is_half = all.scalar_type() == at::kHalf || all.scalar_type() == at::kBFloat16;
  const at::Tensor wide = is_half ? addends.to(at::kFloat) : addends;
  const std::vector<at::Tensor> rows = wide.view({members, part.numel()}).unbind();
  at::Tensor sum = rows[0].clone();
  for (std::size_t i = 1; i < rows.size(); ++i) sum.add_(rows[i]);
  part.copy_(sum);
}

/// The most that a member moves over its link, each way, when parts go to (or come from) all
/// others.
inline double spread_bytes(const Counts& counts, std::size_t element_size) {
  const auto largest = static_cast<double>(*std::max_element(counts.begin(), counts.end()));
  return static_cast<double>(counts.size() - 1) * largest * static_cast<double>(element_size);
}

/// What member `own` moves over its link, the fuller way.
inline double own_bytes(const Splits& splits, std::size_t own, std::size_t element_size) {
  const auto moved = [&](const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) - counts[own];
  };
  return static_cast<double>(std::max(moved(splits.sends), moved(splits.receives))) *
         static_cast<double>(element_size);
}

}  // namespace motley::run
