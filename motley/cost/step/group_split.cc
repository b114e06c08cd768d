#include "motley/cost/step/group_split.h"

#include <algorithm>
#include <limits>

#include "motley/base/check.h"
#include "motley/cost/step/closed_form.h"
#include "motley/cost/step/filling.h"

namespace motley::cost {

std::vector<double> group_tails(const std::vector<GroupMember>& group,
                                const GroupExchanges& exchanges) {
  std::vector<double> slowest(exchanges.exchange.size(), 0.0);
  for (const GroupMember& member : group) {
    const std::vector<double> tails = update_tails(*member.curves);
    MOTLEY_CHECK(tails.size() == slowest.size());
    for (std::size_t k = 0; k < tails.size(); ++k) slowest[k] = std::max(slowest[k], tails[k]);
  }
  return exchange_tails(exchanges.exchange, slowest);
}

double group_step(const std::vector<GroupMember>& group, const GroupExchanges& exchanges,
                  const std::vector<std::int64_t>& samples) {
  MOTLEY_CHECK(group.size() == samples.size());
  const std::vector<double> tails = group_tails(group, exchanges);
  double seconds = 0;
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (samples[i] == 0) continue;
    seconds =
        std::max(seconds, step_seconds(*group[i].curves, tails, static_cast<double>(samples[i])));
  }
  return exchanges.blocking + seconds;
}

std::optional<GroupSplit> find_group_split(const std::vector<GroupMember>& group,
                                           const GroupExchanges& exchanges, std::int64_t batch) {
  return find_group_split(group, exchanges, batch,
                          {group.size(), std::numeric_limits<double>::infinity()});
}

std::optional<GroupSplit> find_group_split(const std::vector<GroupMember>& group,
                                           const GroupExchanges& exchanges, std::int64_t batch,
                                           const GroupSplitLimits& limits) {
  const std::vector<double> tails = group_tails(group, exchanges);
  std::vector<StepRamp> ramps;
  std::vector<DeviceId> ids;
  std::vector<Filling::Crew> crews;
  ramps.reserve(group.size());
  ids.reserve(group.size());
  std::int64_t least = 0;
  for (const GroupMember& member : group) {
    if (member.most < member.least) return std::nullopt;
    least += member.least;
    ramps.emplace_back(
        *member.curves, tails,
        StepRamp::Limits{static_cast<double>(member.most), share_points(*member.curves)});
    ids.push_back(DeviceId(static_cast<std::int64_t>(ids.size())));
    crews.push_back({&ramps.back(), std::max<std::int64_t>(member.least, 1), member.most,
                     std::span(&ids.back(), 1), member.least == 0});
  }
  if (least > batch) return std::nullopt;
  const Filling filling(std::move(crews), {batch, static_cast<std::int64_t>(limits.devices)});
  const auto solution = filling.solve(limits.seconds - exchanges.blocking, filling.least_of_all());
  if (!solution) return std::nullopt;
  GroupSplit split{std::vector<std::int64_t>(group.size(), 0), 0};
  for (const auto& [device, samples] : filling.hand_out(*solution))
    split.samples[device.index()] = samples;
  split.seconds = group_step(group, exchanges, split.samples);
  return split;
}

}  // namespace motley::cost
