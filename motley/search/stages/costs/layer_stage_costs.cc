#include "motley/search/stages/costs/layer_stage_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "motley/base/check.h"

namespace motley::search {
namespace {

tl::unexpected<Error> costs_fault(const std::string& message) {
  return usage_error("search.stages", message);
}

}  // namespace

Result<LayerStageCosts> LayerStageCosts::make(const cost::LayerProfile& profile,
                                              std::vector<DevicePool> pools,
                                              std::shared_ptr<const HopCosts> hops,
                                              const StageRuntime& runtime) {
  LayerStageCosts made;
  made.profile_ = profile;
  made.pools_ = std::move(pools);
  made.hops_ = std::move(hops);
  made.runtime_ = runtime;
  MOTLEY_RETURN_IF_ERROR(cost::check_outputs(profile));
  for (const auto& [degree, sizes] : profile.sizes) {
    if (made.layers_ == 0) made.layers_ = sizes.size();
    if (sizes.size() != made.layers_)
      return costs_fault(fmt::format("{} at tp {}: bytes of {} layers, wanted {}", profile.model,
                                     degree, sizes.size(), made.layers_));
  }
  for (std::size_t pool = 0; pool < made.pools_.size(); ++pool) made.add_units(pool);
  if (made.units_.empty())
    return costs_fault(fmt::format("no device of the cluster is of a kind that {} was profiled on",
                                   profile.model));
  std::set<std::int64_t> batches;
  for (const StageUnit& unit : made.units_)
    for (const auto& [batch, layers] :
         profile.times.at(made.pools_[unit.pool()].kind).at(unit.degree())) {
      batches.insert(batch);
      if (layers.size() != made.layers_)
        return costs_fault(fmt::format("{} on {}, tp {}: times of {} layers, bytes of {}",
                                       profile.model, made.pools_[unit.pool()].kind, unit.degree(),
                                       layers.size(), made.layers_));
    }
  made.micro_batches_.assign(batches.begin(), batches.end());
  for (const StageUnit& unit : made.units_) {
    if (unit.recomputes) continue;
    const cost::LayerTable& table =
        profile.times.at(made.pools_[unit.pool()].kind).at(unit.degree());
    std::vector<std::int64_t> missing;
    for (const std::int64_t batch : batches)
      if (!table.contains(batch)) missing.push_back(batch);
    if (!missing.empty())
      made.note(fmt::format(
          "{} at degree {} was not profiled with micro-batches of {}: those up to {} are "
          "interpolated or extrapolated, larger ones left out",
          made.pools_[unit.pool()].kind, unit.degree(), fmt::join(missing, ", "),
          2 * table.rbegin()->first));
  }
  return made;
}

/// Adds a note unless present; pools of one kind give the same notes.
void LayerStageCosts::note(std::string sentence) {
  if (std::find(notes_.begin(), notes_.end(), sentence) == notes_.end())
    notes_.push_back(std::move(sentence));
}

void LayerStageCosts::add_units(std::size_t pool_index) {
  const DevicePool& pool = pools_[pool_index];
  const auto degrees = profile_.times.find(pool.kind);
  if (degrees == profile_.times.end()) {
    note(fmt::format("{} devices of {} stay idle: {} was not profiled on them", pool.devices,
                     pool.kind, profile_.model));
    return;
  }
  for (const auto& [degree, table] : degrees->second) {
    if (table.empty()) continue;
    if (degree > pool.per_host || degree > pool.devices) {
      note(fmt::format("{} at degree {} is left out: a host has {}", pool.kind, degree,
                       std::min(pool.per_host, pool.devices)));
    } else if (!profile_.sizes.contains(degree)) {
      note(fmt::format("{} at degree {} is left out: its bytes are not known", pool.kind, degree));
    } else {
      units_.push_back({pool_index, degree, false});
      largest_.push_back(2 * table.rbegin()->first);
      if (!runtime_.may_recompute) continue;
      units_.push_back({pool_index, degree, true});
      largest_.push_back(2 * table.rbegin()->first);
    }
  }
}

bool LayerStageCosts::knows(std::size_t unit, std::int64_t micro_batch) const {
  return micro_batch >= 1 && micro_batch <= largest_[unit];
}

std::vector<LayerWork> LayerStageCosts::work(std::size_t unit, std::int64_t micro_batch) const {
  const StageUnit& of = units_[unit];
  const auto times = cost::layer_times(profile_, pools_[of.pool()].kind, of.degree(), micro_batch);
  MOTLEY_CHECK(times.has_value());
  std::vector<LayerWork> work;
  for (const cost::LayerTime& time : *times)
    work.push_back(
        {time.forward, of.recomputes ? time.backward + time.forward : time.backward, time.update});
  return work;
}

std::vector<LayerBytes> LayerStageCosts::bytes(std::size_t unit) const {
  const int degree = units_[unit].degree();
  const std::vector<cost::LayerSize>& sizes = profile_.sizes.at(degree);
  std::vector<LayerBytes> bytes;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const cost::LayerSize& size = sizes[i];
    LayerBytes layer{size.states, size.gradients, size.kept, size.kept, size.output};
    if (runtime_.sends_whole) layer.output = size.output * degree;
    if (runtime_.copies_gradients) layer.states += size.gradients;
    if (units_[unit].recomputes) {
      layer.workspace = size.kept * 2;  // the kept values and their gradients
      layer.kept = i == 0 ? Bytes(0) : std::min(size.kept, sizes[i - 1].output);
    }
    bytes.push_back(layer);
  }
  return bytes;
}

std::optional<Hop> LayerStageCosts::hop(HopEnd from, HopEnd to, HopReach reach, Bytes bytes) const {
  std::optional<Hop> hop = hops_->hop(from, to, reach, bytes);
  // Receivers of a part each exchange them, all at once in each of n - 1 rounds.
  const int parts = std::min(from.devices, to.devices);
  if (!hop || runtime_.sends_whole || to.devices == 1 || parts == 1) return hop;
  const std::optional<Hop> inside = hops_->hop(to, to, HopReach::kSameHost, bytes);
  if (inside)
    hop->delay += Seconds(static_cast<double>(bytes.value) * (parts - 1) / inside->rate.value);
  return hop;
}

std::optional<std::size_t> LayerStageCosts::find_unit(const std::string& kind, int degree) const {
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (pools_[units_[unit].pool()].kind == kind && units_[unit].degree() == degree &&
        !units_[unit].recomputes)
      return unit;
  return std::nullopt;
}

}  // namespace motley::search
