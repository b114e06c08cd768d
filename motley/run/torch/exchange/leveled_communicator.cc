#include "motley/run/torch/exchange/leveled_communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "motley/base/check.h"

namespace motley::run {
namespace {

std::int64_t sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

at::Tensor flat_like(const at::Tensor& tensor, std::int64_t elements) {
  return at::empty({elements}, tensor.options());
}

using Order = std::vector<std::size_t>;  // members

/// Returns the members place by place, each place over all hosts.
Order by_place(const Levels& levels) {
  Order order;
  for (std::size_t place = 0; place < levels.hosts[0].size(); ++place)
    for (const auto& host : levels.hosts) order.push_back(host[place]);
  return order;
}

Order by_host(const Levels& levels) {
  Order order;
  for (const auto& host : levels.hosts) order.insert(order.end(), host.begin(), host.end());
  return order;
}

/// Reorders parts from member order into `order`.
at::Tensor reordered(const at::Tensor& all, const Counts& counts, const Order& order) {
  const std::vector<at::Tensor> parts = all.split_with_sizes(counts);
  at::Tensor result = flat_like(all, all.numel());
  std::int64_t begin = 0;
  for (const std::size_t member : order) {
    result.narrow(0, begin, counts[member]).copy_(parts[member]);
    begin += counts[member];
  }
  return result;
}

void put_back(const at::Tensor& ordered, const Counts& counts, const Order& order,
              at::Tensor& all) {
  const std::vector<at::Tensor> parts = all.split_with_sizes(counts);
  std::int64_t begin = 0;
  for (const std::size_t member : order) {
    parts[member].copy_(ordered.narrow(0, begin, counts[member]));
    begin += counts[member];
  }
}

Counts counts_of(const Counts& counts, const std::vector<std::size_t>& members) {
  Counts some;
  for (const std::size_t member : members) some.push_back(counts[member]);
  return some;
}

/// Returns, by place, the sum over all members at that place.
Counts sums_by_place(const Levels& levels, const Counts& counts) {
  Counts sums(levels.hosts[0].size(), 0);
  for (const auto& host : levels.hosts)
    for (std::size_t place = 0; place < host.size(); ++place) sums[place] += counts[host[place]];
  return sums;
}

Counts sums_by_host(const Levels& levels, const Counts& counts) {
  Counts sums;
  for (const auto& host : levels.hosts) sums.push_back(sum_of(counts_of(counts, host)));
  return sums;
}

/// Returns the counts of the members at this rank's place.
Counts counts_across(const Levels& levels, const Counts& counts) {
  Counts across;
  for (const auto& host : levels.hosts) across.push_back(counts[host[levels.place]]);
  return across;
}

Counts counts_inside(const Levels& levels, const Counts& counts) {
  return counts_of(counts, levels.hosts[levels.host]);
}

/// Returns counts that give everything to the first member of this host.
Counts all_with_first(const Levels& levels, std::int64_t elements) {
  Counts counts(levels.hosts[levels.host].size(), 0);
  counts[0] = elements;
  return counts;
}

class LeveledCommunicator final : public Communicator {
 public:
  LeveledCommunicator(std::unique_ptr<Communicator> inner, std::map<GroupId, Levels> levels)
      : inner_(std::move(inner)), levels_(std::move(levels)) {}

  Result<void> all_reduce(const ExchangeCall& call, at::Tensor& tensor) override;
  Result<void> all_gather(const ExchangeCall& call, const Counts& counts, const at::Tensor& part,
                          at::Tensor& all) override;
  Result<void> reduce_scatter(const ExchangeCall& call, const Counts& counts, const at::Tensor& all,
                              at::Tensor& part) override;
  Result<void> all_to_all(const ExchangeCall& call, const Splits& splits, const at::Tensor& in,
                          at::Tensor& out) override;
  Result<std::int64_t> send(int peer, const at::Tensor& tensor) override {
    return inner_->send(peer, tensor);
  }
  Result<std::int64_t> receive(int peer, at::Tensor& tensor) override {
    return inner_->receive(peer, tensor);
  }
  Result<void> broadcast(at::Tensor& tensor) override { return inner_->broadcast(tensor); }
  std::string transport() const override { return inner_->transport(); }
  std::int64_t arrived_ns() const override { return inner_->arrived_ns(); }
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void close() override { inner_->close(); }

 private:
  const Levels* find(const ExchangeCall& call) const {
    const auto found = levels_.find(call.group);
    const bool has_levels = call.method == ExchangeMethod::kHierarchical && found != levels_.end();
    return has_levels ? &found->second : nullptr;
  }
  Result<void> give_to_others(const Levels& levels, at::Tensor& tensor);

  std::unique_ptr<Communicator> inner_;
  std::map<GroupId, Levels> levels_;
};

/// Copies the first member's tensor to the other members of this host.
Result<void> LeveledCommunicator::give_to_others(const Levels& levels, at::Tensor& tensor) {
  const at::Tensor own = levels.place == 0 ? tensor.clone() : flat_like(tensor, 0);
  return inner_->all_gather(levels.inside, all_with_first(levels, tensor.numel()), own, tensor);
}

Result<void> LeveledCommunicator::all_reduce(const ExchangeCall& call, at::Tensor& tensor) {
  const Levels* levels = find(call);
  if (levels == nullptr) return inner_->all_reduce(call.group, tensor);
  at::Tensor flat = tensor.view({-1});
  if (flat.numel() == 0) return {};
  if (!levels->is_even) {
    MOTLEY_RETURN_IF_ERROR(inner_->all_reduce(levels->inside, flat));
    if (!levels->across.is_none()) MOTLEY_RETURN_IF_ERROR(inner_->all_reduce(levels->across, flat));
    return give_to_others(*levels, flat);
  }
  const auto places = static_cast<std::int64_t>(levels->hosts[0].size());
  Counts counts;
  for (std::int64_t place = 0; place < places; ++place)
    counts.push_back(flat.numel() * (place + 1) / places - flat.numel() * place / places);
  at::Tensor part = flat_like(flat, counts[levels->place]);
  MOTLEY_RETURN_IF_ERROR(inner_->reduce_scatter(levels->inside, counts, flat, part));
  MOTLEY_RETURN_IF_ERROR(inner_->all_reduce(levels->across, part));
  return inner_->all_gather(levels->inside, counts, part, flat);
}

Result<void> LeveledCommunicator::all_gather(const ExchangeCall& call, const Counts& counts,
                                             const at::Tensor& part, at::Tensor& all) {
  const Levels* levels = find(call);
  if (levels == nullptr) return inner_->all_gather(call, counts, part, all);
  at::Tensor ordered = flat_like(all, all.numel());
  if (levels->is_even) {
    const Counts across = counts_across(*levels, counts);
    at::Tensor column = flat_like(all, sum_of(across));
    MOTLEY_RETURN_IF_ERROR(inner_->all_gather(levels->across, across, part, column));
    MOTLEY_RETURN_IF_ERROR(
        inner_->all_gather(levels->inside, sums_by_place(*levels, counts), column, ordered));
    put_back(ordered, counts, by_place(*levels), all);
    return {};
  }
  const Counts inside = counts_inside(*levels, counts);
  at::Tensor host = flat_like(all, sum_of(inside));
  MOTLEY_RETURN_IF_ERROR(inner_->all_gather(levels->inside, inside, part, host));
  if (!levels->across.is_none())
    MOTLEY_RETURN_IF_ERROR(
        inner_->all_gather(levels->across, sums_by_host(*levels, counts), host, ordered));
  MOTLEY_RETURN_IF_ERROR(give_to_others(*levels, ordered));
  put_back(ordered, counts, by_host(*levels), all);
  return {};
}

Result<void> LeveledCommunicator::reduce_scatter(const ExchangeCall& call, const Counts& counts,
                                                 const at::Tensor& all, at::Tensor& part) {
  const Levels* levels = find(call);
  if (levels == nullptr) return inner_->reduce_scatter(call, counts, all, part);
  if (levels->is_even) {
    const at::Tensor ordered = reordered(all, counts, by_place(*levels));
    const Counts across = counts_across(*levels, counts);
    at::Tensor column = flat_like(all, sum_of(across));
    MOTLEY_RETURN_IF_ERROR(
        inner_->reduce_scatter(levels->inside, sums_by_place(*levels, counts), ordered, column));
    return inner_->reduce_scatter(levels->across, across, column, part);
  }
  const at::Tensor ordered = reordered(all, counts, by_host(*levels));
  const bool is_first = levels->place == 0;
  const std::int64_t whole = all.numel();
  at::Tensor sums = flat_like(all, is_first ? whole : 0);
  MOTLEY_RETURN_IF_ERROR(
      inner_->reduce_scatter(levels->inside, all_with_first(*levels, whole), ordered, sums));
  const Counts inside = counts_inside(*levels, counts);
  at::Tensor host = flat_like(all, is_first ? sum_of(inside) : 0);
  if (!levels->across.is_none())
    MOTLEY_RETURN_IF_ERROR(
        inner_->reduce_scatter(levels->across, sums_by_host(*levels, counts), sums, host));
  const Counts nothing(inside.size(), 0);
  const Splits splits{is_first ? inside : nothing, all_with_first(*levels, part.numel())};
  return inner_->all_to_all(levels->inside, splits, host, part);
}

Result<void> LeveledCommunicator::all_to_all(const ExchangeCall& call, const Splits& splits,
                                             const at::Tensor& in, at::Tensor& out) {
  const Levels* levels = find(call);
  if (levels == nullptr || !levels->is_even) return inner_->all_to_all(call, splits, in, out);
  const auto& hosts = levels->hosts;
  const std::size_t members = splits.sends.size(), places = hosts[0].size();
  const auto width = static_cast<std::int64_t>(members);
  const auto options = in.options().dtype(at::kLong);
  at::Tensor given = at::empty({width * width}, options);
  MOTLEY_RETURN_IF_ERROR(all_gather(call, Counts(members, width),
                                    at::tensor(splits.sends).to(options.device()), given));
  const at::Tensor known = given.cpu();
  const auto count = [&](std::size_t from, std::size_t to) {
    return known.const_data_ptr<std::int64_t>()[from * members + to];
  };
  const std::size_t own = hosts[levels->host][levels->place];

  // To each local place: what its members on all hosts receive, host by host.
  Counts column_counts;  // received: by local sender, then by receiving host
  Splits inside{sums_by_place(*levels, splits.sends), Counts(places, 0)};
  for (std::size_t place = 0; place < places; ++place)
    for (const auto& host : hosts) {
      column_counts.push_back(count(hosts[levels->host][place], host[levels->place]));
      inside.receives[place] += column_counts.back();
    }
  at::Tensor column = flat_like(in, sum_of(inside.receives));
  MOTLEY_RETURN_IF_ERROR(inner_->all_to_all(
      levels->inside, inside, reordered(in, splits.sends, by_place(*levels)), column));

  // To each host: what its member at this place receives, by local sender.
  Order by_receiver;
  Splits across{Counts(hosts.size(), 0), Counts(hosts.size(), 0)};
  for (std::size_t host = 0; host < hosts.size(); ++host)
    for (std::size_t place = 0; place < places; ++place) {
      by_receiver.push_back(place * hosts.size() + host);
      across.sends[host] += column_counts[by_receiver.back()];
      across.receives[host] += count(hosts[host][place], own);
    }
  at::Tensor ordered = flat_like(out, out.numel());
  MOTLEY_RETURN_IF_ERROR(inner_->all_to_all(
      levels->across, across, reordered(column, column_counts, by_receiver), ordered));
  put_back(ordered, splits.receives, by_host(*levels), out);
  return {};
}

}  // namespace

Levels find_levels(const std::vector<int>& members, const std::vector<std::string>& host_of_rank,
                   int rank) {
  Levels levels;
  std::map<std::string, std::size_t> known;
  for (std::size_t member = 0; member < members.size(); ++member) {
    const std::string& name = host_of_rank[static_cast<std::size_t>(members[member])];
    const auto [host, is_new] = known.try_emplace(name, levels.hosts.size());
    if (is_new) levels.hosts.emplace_back();
    std::vector<std::size_t>& here = levels.hosts[host->second];
    if (members[member] == rank) {
      levels.host = host->second;
      levels.place = here.size();
    }
    here.push_back(member);
  }
  if (levels.hosts.size() < 2 || levels.hosts.size() == members.size()) return {};
  levels.is_even = std::all_of(levels.hosts.begin(), levels.hosts.end(), [&](const auto& host) {
    return host.size() == levels.hosts[0].size();
  });
  return levels;
}

std::vector<std::vector<int>> make_level_groups(const std::vector<int>& members, Levels& levels,
                                                std::int64_t next) {
  std::vector<std::vector<int>> groups;
  for (std::size_t host = 0; host < levels.hosts.size(); ++host) {
    if (host == levels.host) levels.inside = GroupId(next + static_cast<std::int64_t>(host));
    std::vector<int>& inside = groups.emplace_back();
    for (const std::size_t member : levels.hosts[host]) inside.push_back(members[member]);
  }
  const std::size_t places = levels.is_even ? levels.hosts[0].size() : 1;
  for (std::size_t place = 0; place < places; ++place) {
    if (place == levels.place)
      levels.across = GroupId(next + static_cast<std::int64_t>(groups.size()));
    std::vector<int>& across = groups.emplace_back();
    for (const auto& host : levels.hosts) across.push_back(members[host[place]]);
  }
  return groups;
}

std::unique_ptr<Communicator> with_levels(std::unique_ptr<Communicator> inner,
                                          std::map<GroupId, Levels> levels) {
  if (levels.empty()) return inner;
  return std::make_unique<LeveledCommunicator>(std::move(inner), std::move(levels));
}

}  // namespace motley::run
