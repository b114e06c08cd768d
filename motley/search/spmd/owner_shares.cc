#include "motley/search/spmd/owner_shares.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "motley/cost/profile_cost.h"
#include "motley/program/parts.h"
#include "motley/search/spmd/best_mix.h"

namespace motley::search {
namespace {

/// Of the exchanges of one owner; any number, since shares are relative.
constexpr std::int64_t kBytes = std::int64_t{1} << 30;
/// Of shares that load the fullest link least, those are taken that load all links least: this part
/// of an owner's load on all links counts on each.
constexpr double kTie = 1e-8;

/// Adds the seconds that a transfer keeps each link busy.
void add_load(const cost::Transfer& transfer, const std::vector<double>& capacities,
              std::vector<double>& seconds) {
  for (const cost::TransferPhase& phase : transfer.phases)
    for (const cost::Flow& flow : phase.flows)
      for (const cost::LinkUse& use : flow.uses) {
        const auto link = static_cast<std::size_t>(use.link);
        seconds[link] += flow.bytes * use.weight / capacities[link];
      }
}

}  // namespace

Result<std::optional<OwnerShares>> find_shares_by_links(const cost::CostModel& model,
                                                        const cluster::Cluster& cluster,
                                                        const std::vector<DeviceId>& devices) {
  const std::vector<double> capacities = model.link_capacities();
  if (devices.size() < 2 || capacities.empty() || !cost::have_own_links(cluster, devices))
    return std::nullopt;
  const ExchangeMethod method =
      cost::has_levels(cluster, devices) ? ExchangeMethod::kHierarchical : ExchangeMethod::kNative;
  std::vector<std::string> names;
  for (const DeviceId device : devices) names.push_back(cluster.device(device).name);
  std::vector<std::vector<double>> loads;  // seconds by owner and link
  for (std::size_t owner = 0; owner < devices.size(); ++owner) {
    cost::ExchangeSize size{Bytes(static_cast<std::int64_t>(devices.size()) * kBytes),
                            std::vector<Bytes>(devices.size())};
    size.parts[owner] = Bytes(kBytes);
    std::vector<double>& seconds = loads.emplace_back(capacities.size(), 0.0);
    for (const std::string_view op : {program::kReduceScatter, program::kAllGather}) {
      MOTLEY_ASSIGN(const cost::Transfer transfer,
                    model.transfer(program::collective_name(op, method), size, names));
      add_load(transfer, capacities, seconds);
    }
  }
  double slowest = 0;
  for (const std::vector<double>& seconds : loads)
    slowest = std::max(slowest, *std::max_element(seconds.begin(), seconds.end()));
  if (!(slowest > 0)) return std::nullopt;
  // The game of best_mix has gains, not losses.
  std::vector<std::vector<double>> rows;
  for (std::size_t link = 0; link < capacities.size(); ++link) {
    std::vector<double>& row = rows.emplace_back();
    for (const std::vector<double>& seconds : loads)
      row.push_back(2 * slowest - seconds[link] -
                    kTie * std::accumulate(seconds.begin(), seconds.end(), 0.0));
  }
  OwnerShares shares;
  const Mix mix = best_mix(rows);
  for (std::size_t d = 0; d < devices.size(); ++d)
    if (mix.weights[d] > 0) shares[devices[d]] = mix.weights[d];
  return shares;
}

}  // namespace motley::search
