#include "motley/run/torch/exchange/gloo_exchange.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "motley/run/torch/exchange/split_exchange.h"

namespace motley::run {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

constexpr std::int64_t kPieceBytes = 512 << 10;  // bytes forwarded at once

/// Messages to or from one member, numbered at both ends in the same order.
class Mail {
 public:
  Mail(c10d::Backend& gloo, int peer) : gloo_(gloo), peer_(peer) {}
  Work send(const at::Tensor& piece) {
    std::vector<at::Tensor> bytes{piece.view(at::kByte)};
    return gloo_.send(bytes, peer_, next_++);
  }
  Work receive(const at::Tensor& piece) {
    std::vector<at::Tensor> bytes{piece.view(at::kByte)};
    return gloo_.recv(bytes, peer_, next_++);
  }

 private:
  c10d::Backend& gloo_;
  int peer_, next_ = 0;
};

std::vector<at::Tensor> parts_of(const at::Tensor& flat, const Counts& counts) {
  return flat.split_with_sizes(counts);
}

std::vector<at::Tensor> pieces_of(const at::Tensor& part) {
  std::vector<at::Tensor> pieces;
  const auto most =
      std::max<std::int64_t>(1, kPieceBytes / static_cast<std::int64_t>(part.element_size()));
  for (std::int64_t begin = 0; begin < part.numel(); begin += most)
    pieces.push_back(part.narrow(0, begin, std::min(most, part.numel() - begin)));
  return pieces;
}

struct Ring {
  explicit Ring(c10d::Backend& gloo)
      : own(gloo.getRank()),
        members(gloo.getSize()),
        next(gloo, (own + 1) % members),
        previous(gloo, (own + members - 1) % members) {}
  std::size_t before(int places) const {
    return static_cast<std::size_t>(((own - places) % members + members) % members);
  }
  int own, members;
  Mail next, previous;
};

void wait_for(const std::vector<Work>& works) {
  for (const Work& work : works) work->wait();
}

void pass_all_gather(c10d::Backend& gloo, const Counts& counts, const at::Tensor& part,
                     at::Tensor& all) {
  Ring ring(gloo);
  const std::vector<at::Tensor> parts = parts_of(all, counts);
  parts[ring.before(0)].copy_(part);
  struct Coming {
    at::Tensor piece;
    Work work;
    bool is_passed_on;
  };
  std::vector<Coming> coming;
  for (int s = 1; s < ring.members; ++s)
    for (const at::Tensor& piece : pieces_of(parts[ring.before(s)]))
      coming.push_back({piece, ring.previous.receive(piece), s + 1 < ring.members});
  std::vector<Work> sent;
  for (const at::Tensor& piece : pieces_of(parts[ring.before(0)]))
    sent.push_back(ring.next.send(piece));
  for (const Coming& each : coming) {
    each.work->wait();
    if (each.is_passed_on) sent.push_back(ring.next.send(each.piece));
  }
  wait_for(sent);
}

void pass_reduce_scatter(c10d::Backend& gloo, const Counts& counts, const at::Tensor& all,
                         at::Tensor& part) {
  Ring ring(gloo);
  const std::vector<at::Tensor> addends = parts_of(all, counts);
  struct Coming {
    at::Tensor sum, addend, result;
    Work work;
    bool is_passed_on;
  };
  std::vector<Coming> coming;
  for (int s = 2; s <= ring.members; ++s) {
    const at::Tensor& addend = addends[ring.before(s)];
    const bool is_own = s == ring.members;
    const at::Tensor sums = at::empty({addend.numel()}, all.options());
    const std::vector<at::Tensor> sum = pieces_of(sums), own = pieces_of(addend),
                                  result = pieces_of(is_own ? part : sums);
    for (std::size_t i = 0; i < sum.size(); ++i)
      coming.push_back({sum[i], own[i], result[i], ring.previous.receive(sum[i]), !is_own});
  }
  std::vector<Work> sent;
  for (const at::Tensor& piece : pieces_of(addends[ring.before(1)]))
    sent.push_back(ring.next.send(piece));
  for (Coming& each : coming) {
    each.work->wait();
    at::add_out(each.result, each.sum, each.addend);
    if (each.is_passed_on) sent.push_back(ring.next.send(each.result));
  }
  wait_for(sent);
}

void send_slices(c10d::Backend& gloo, const Splits& splits, const at::Tensor& in, at::Tensor& out) {
  const std::vector<at::Tensor> from = parts_of(in, splits.sends);
  const std::vector<at::Tensor> to = parts_of(out, splits.receives);
  const auto own = static_cast<std::size_t>(gloo.getRank());
  std::vector<Work> works;
  for (std::size_t i = 0; i < to.size(); ++i)
    if (i != own && to[i].numel() > 0)
      works.push_back(Mail(gloo, static_cast<int>(i)).receive(to[i]));
  for (std::size_t i = 0; i < from.size(); ++i)
    if (i != own && from[i].numel() > 0)
      works.push_back(Mail(gloo, static_cast<int>(i)).send(from[i]));
  to[own].copy_(from[own]);
  wait_for(works);
}

/// Wraps Gloo's all-to-all with splits, which moves out of its counts.
auto splits_over(c10d::Backend& gloo) {
  return [&gloo](at::Tensor& to, at::Tensor& from, Counts receives, Counts sends) {
    gloo.alltoall_base(to, from, receives, sends)->wait();
  };
}

}  // namespace

void gloo_all_gather(c10d::Backend& gloo, ExchangeMethod method, const Counts& counts,
                     const at::Tensor& part, at::Tensor& all) {
  if (method == ExchangeMethod::kGrouped) return pass_all_gather(gloo, counts, part, all);
  if (method != ExchangeMethod::kPadded)
    return gather_by_splits(splits_over(gloo), counts, part, all);
  const auto even = [&](at::Tensor& to, at::Tensor& from) {
    gloo._allgather_base(to, from)->wait();
  };
  gather_padded(even, counts, part, all);
}

void gloo_reduce_scatter(c10d::Backend& gloo, ExchangeMethod method, const Counts& counts,
                         const at::Tensor& all, at::Tensor& part) {
  if (method == ExchangeMethod::kGrouped) return pass_reduce_scatter(gloo, counts, all, part);
  if (method != ExchangeMethod::kPadded)
    return reduce_scatter_by_splits(splits_over(gloo), counts, all, part);
  const auto even = [&](at::Tensor& to, at::Tensor& from) {
    gloo._reduce_scatter_base(to, from)->wait();
  };
  reduce_scatter_padded(even, counts, all, part);
}

void gloo_all_to_all(c10d::Backend& gloo, ExchangeMethod method, const Splits& splits,
                     const at::Tensor& in, at::Tensor& out) {
  if (method == ExchangeMethod::kGrouped) return send_slices(gloo, splits, in, out);
  if (method != ExchangeMethod::kPadded)
    return exchange_by_splits(splits_over(gloo), splits, in, out);
  const auto even = [&](at::Tensor& to, at::Tensor& from) {
    Counts none_out, none_in;
    gloo.alltoall_base(to, from, none_out, none_in)->wait();
  };
  exchange_padded(even, splits, in, out);
}

}  // namespace motley::run
