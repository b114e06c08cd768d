#pragma once

#include <map>
#include <optional>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/cost/cost_model.h"

namespace motley::search {

/// Shares of owners (plan/owners.h), by device.
using OwnerShares = std::map<DeviceId, double>;

/// Finds shares by what links carry of a reduce-scatter and an all-gather among the devices, one
/// group of replicas. Both ways of every link are used at the same time
/// (synth/stages/gradient_exchange.h). What a link carries is linear in the shares: with a(l, d)
/// seconds of link l when d owns all, shares p take max_l sum_d p_d a(l, d). Their minimum is a
/// linear program (best_mix.h), which for one device a host and cards of b_d bytes/s is BytePS's
/// (OSDI 2020): B bytes among n devices take max_d (1 + (n - 2) p_d) B / b_d. None if no link is
/// used, or links are emulated. Errors of the cost model.
///
/// Example: cards of 4, 1 and 1: the first owns all (2/4 s for itself, 1 s for each other). Cards
/// of 1, 1 and 1: a third each.
Result<std::optional<OwnerShares>> find_shares_by_links(const cost::CostModel& model,
                                                        const cluster::Cluster& cluster,
                                                        const std::vector<DeviceId>& devices);

}  // namespace motley::search
