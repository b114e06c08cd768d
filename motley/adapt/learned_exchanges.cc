#include "motley/adapt/learned_exchanges.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "motley/base/json_fields.h"
#include "motley/base/statistics.h"

namespace motley::adapt {
namespace {

/// Steps over which the median of exchanges is taken.
constexpr std::size_t kExchangeWindow = 16;

cost::GroupExchanges middle_of(const std::vector<std::vector<double>>& rows) {
  cost::GroupExchanges middle;
  for (std::size_t k = 0; k < rows.front().size(); ++k) {
    std::vector<double> column;
    for (const std::vector<double>& row : rows) column.push_back(row[k]);
    middle.exchange.push_back(median(std::move(column)));
  }
  middle.blocking = middle.exchange.back();
  middle.exchange.pop_back();
  return middle;
}

double seconds_of(const cost::GroupExchanges& times) {
  return std::accumulate(times.exchange.begin(), times.exchange.end(), times.blocking);
}

}  // namespace

void LearnedExchanges::observe(const policy::StepSeen& step) {
  const auto devices = static_cast<std::size_t>(
      std::count_if(step.devices.begin(), step.devices.end(),
                    [](const policy::DeviceStep& device) { return device.samples > 0; }));
  if (devices < 2) return;
  std::vector<double> row = step.exchange;
  row.push_back(step.blocking);
  // Programs with other exchanges are not comparable.
  std::erase_if(seen_, [&](const auto& each) { return each.second.front().size() != row.size(); });
  Rows& rows = seen_[devices];
  rows.push_back(std::move(row));
  if (rows.size() > kExchangeWindow) rows.erase(rows.begin());
}

/// Returns the prior for a number of devices; for more than known, that of the most.
const cost::GroupExchanges* LearnedExchanges::believed(std::size_t devices) const {
  return believed_.empty() ? nullptr : &believed_[std::min(devices - 2, believed_.size() - 1)];
}

const std::pair<const std::size_t, LearnedExchanges::Rows>* LearnedExchanges::nearest(
    std::size_t devices) const {
  const auto distance = [&](std::size_t of) { return of > devices ? of - devices : devices - of; };
  const std::pair<const std::size_t, Rows>* found = nullptr;
  for (const auto& each : seen_)
    if (found == nullptr || distance(each.first) < distance(found->first)) found = &each;
  return found;
}

cost::GroupExchanges LearnedExchanges::of(std::size_t devices) const {
  if (devices < 2) return {};
  const cost::GroupExchanges* belief = believed(devices);
  const auto* seen = nearest(devices);
  if (seen == nullptr) return belief != nullptr ? *belief : cost::GroupExchanges();
  cost::GroupExchanges times = middle_of(seen->second);
  if (belief == nullptr || seen->first == devices) return times;
  const double believed_of_seen = seconds_of(*believed(seen->first));
  if (believed_of_seen <= 0) return times;
  const double factor = seconds_of(*belief) / believed_of_seen;
  for (double& seconds : times.exchange) seconds *= factor;
  times.blocking *= factor;
  return times;
}

Json LearnedExchanges::state() const {
  Json groups = Json::array();
  for (const auto& [devices, rows] : seen_)
    groups.push_back({{"devices", devices}, {"exchanges", rows}});
  return groups;
}

Result<void> LearnedExchanges::restore(const Json& json, const std::string& where) {
  if (!json.is_array()) return usage_error("policy.state", where + ": wanted a list of groups");
  std::map<std::size_t, Rows> seen;
  for (const Json& group : json) {
    MOTLEY_ASSIGN(JsonObject each, JsonObject::make(group, where));
    std::int64_t devices = 0;
    Rows rows;
    MOTLEY_RETURN_IF_ERROR(FieldReader(each)("devices", devices)("exchanges", rows).result());
    MOTLEY_RETURN_IF_ERROR(each.refuse_unknown());
    const std::size_t columns = rows.empty() ? 0 : rows.front().size();
    const bool is_whole =
        devices >= 2 && columns > 0 &&
        std::all_of(rows.begin(), rows.end(), [&](const auto& r) { return r.size() == columns; }) &&
        (seen.empty() || seen.begin()->second.front().size() == columns);
    if (!is_whole)
      return usage_error("policy.state",
                         where + ": wanted as many exchanges in each step, of 2 devices or more");
    seen[static_cast<std::size_t>(devices)] = std::move(rows);
  }
  seen_ = std::move(seen);
  return {};
}

}  // namespace motley::adapt
