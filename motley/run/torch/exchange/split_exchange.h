#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "motley/run/torch/exchange/communicator.h"

namespace motley::run {

/// Exchanges parts through a library's all-to-all with splits, in which each member sends and
/// receives exactly its bytes. `exchange(out, in, receives, sends)` gets flat byte tensors and byte
/// counts, by value: c10d moves out of them. Inline, because the CUDA library uses it too.
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

/// Sends the own part to everybody: makes one copy each; the library sends all but one.
template <typename Exchange>
void gather_by_splits(const Exchange& exchange, const Counts& counts, const at::Tensor& part,
                      at::Tensor& all) {
  const auto members = static_cast<std::int64_t>(counts.size());
  const Counts sends(counts.size(), part.numel());
  exchange_by_splits(exchange, {sends, counts}, part.repeat({members}), all);
}

/// Collects all addends of the own part and sums them in member order.
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

/// Copies parts, one after another, into equal cells, or out of them (empty_cells).
inline void fill_cells(const Counts& counts, std::int64_t cell, const at::Tensor& parts,
                       at::Tensor& cells) {
  for (std::int64_t i = 0, begin = 0; i < static_cast<std::int64_t>(counts.size()); ++i) {
    const std::int64_t count = counts[static_cast<std::size_t>(i)];
    cells.narrow(0, i * cell, count).copy_(parts.narrow(0, begin, count));
    begin += count;
  }
}
inline void empty_cells(const Counts& counts, std::int64_t cell, const at::Tensor& cells,
                        at::Tensor& parts) {
  for (std::int64_t i = 0, begin = 0; i < static_cast<std::int64_t>(counts.size()); ++i) {
    const std::int64_t count = counts[static_cast<std::size_t>(i)];
    parts.narrow(0, begin, count).copy_(cells.narrow(0, i * cell, count));
    begin += count;
  }
}

/// Exchanges parts through a library's collectives for equal sizes, padded to the largest.
/// `exchange(out, in)`; all-gather and all-to-all exchange bytes.
template <typename Exchange>
void gather_padded(const Exchange& exchange, const Counts& counts, const at::Tensor& part,
                   at::Tensor& all) {
  const std::int64_t cell = *std::max_element(counts.begin(), counts.end());
  at::Tensor in = at::empty({cell}, part.options());
  at::Tensor out = at::empty({static_cast<std::int64_t>(counts.size()) * cell}, part.options());
  fill_cells({part.numel()}, cell, part, in);
  at::Tensor source = in.view(at::kByte), target = out.view(at::kByte);
  exchange(target, source);
  empty_cells(counts, cell, out, all);
}

template <typename Exchange>
void reduce_scatter_padded(const Exchange& exchange, const Counts& counts, const at::Tensor& all,
                           at::Tensor& part) {
  const std::int64_t cell = *std::max_element(counts.begin(), counts.end());
  at::Tensor in = at::zeros({static_cast<std::int64_t>(counts.size()) * cell}, all.options());
  at::Tensor out = at::empty({cell}, all.options());
  fill_cells(counts, cell, all, in);
  exchange(out, in);
  empty_cells({part.numel()}, cell, out, part);
}

template <typename Exchange>
void exchange_padded(const Exchange& exchange, const Splits& splits, const at::Tensor& in,
                     at::Tensor& out) {
  const auto members = static_cast<std::int64_t>(splits.sends.size());
  at::Tensor from = at::empty({members * splits.cell}, in.options());
  at::Tensor to = at::empty({members * splits.cell}, in.options());
  fill_cells(splits.sends, splits.cell, in, from);
  at::Tensor source = from.view(at::kByte), target = to.view(at::kByte);
  exchange(target, source);
  empty_cells(splits.receives, splits.cell, to, out);
}

/// Returns the most bytes that a member moves each way over its link when parts go to or come from
/// all others; grouped: when they pass around a ring.
inline double spread_bytes(ExchangeMethod method, const Counts& counts, std::size_t element_size) {
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  const std::int64_t moved =
      method == ExchangeMethod::kGrouped
          ? std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) - *least
          : (static_cast<std::int64_t>(counts.size()) - 1) * *most;
  return static_cast<double>(moved) * static_cast<double>(element_size);
}

/// Returns the bytes that member `own` moves over its link, in the busier direction.
inline double own_bytes(const Splits& splits, std::size_t own, std::size_t element_size) {
  if (splits.cell > 0)
    return static_cast<double>(splits.sends.size() - 1) * static_cast<double>(splits.cell) *
           static_cast<double>(element_size);
  const auto moved = [&](const Counts& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) - counts[own];
  };
  return static_cast<double>(std::max(moved(splits.sends), moved(splits.receives))) *
         static_cast<double>(element_size);
}

}  // namespace motley::run
