#include "peers/policies/cannikin.h"

#include <algorithm>
#include <utility>

#include "motley/base/json_fields.h"
#include "motley/cost/step/group_split.h"

namespace motley::peers {
namespace {

/// Fits a line by least squares, with slope and offset >= 0. One point: in proportion to samples.
cost::Curve straight_line(const std::vector<std::pair<double, double>>& points) {
  double x = 0, y = 0;
  for (const auto& [samples, seconds] : points) x += samples, y += seconds;
  x /= static_cast<double>(points.size()), y /= static_cast<double>(points.size());
  double xx = 0, xy = 0;
  for (const auto& [samples, seconds] : points) {
    xx += (samples - x) * (samples - x);
    xy += (samples - x) * (seconds - y);
  }
  const double slope = xx > 0 ? std::clamp(xy / xx, 1e-6 * y / x, y / x) : y / x;
  return {{{0, y - slope * x}, {x, y}}};
}

/// A device's sums, as {samples, steps, end, first}.
struct SumRows {
  std::vector<std::vector<double>> sums;
  static void fields(auto& it, auto& field) { field("sums", it.sums); }
};

}  // namespace

Cannikin::Cannikin(std::vector<adapt::DeviceLimits> devices, std::int64_t epoch_steps)
    : adapt::Baseline("cannikin", std::move(devices)),
      epoch_steps_(std::max<std::int64_t>(epoch_steps, 1)),
      sums_(this->devices().size()) {}

void Cannikin::learn(const policy::StepSeen& seen) {
  ++steps_;
  for (std::size_t i = 0; i < sums_.size(); ++i)
    for (const policy::DeviceStep& device : seen.devices) {
      if (device.device != devices()[i].device || device.samples <= 0) continue;
      Sums& sums = sums_[i][device.samples];
      sums.steps += 1;
      sums.end += device.end;
      sums.first += device.ready.empty() ? device.end : device.ready.front();
    }
  if (seen.exchange.empty()) return;
  for (const double seconds : seen.exchange) early_ += seconds;
  early_ -= seen.exchange.back();
  last_ += seen.exchange.back();
}

adapt::Baseline::Wish Cannikin::wish(const policy::StepSeen& seen,
                                     const std::vector<std::int64_t>& now) {
  const std::int64_t epoch = steps_ / epoch_steps_;
  if (epoch == planned_epoch_) return {};
  planned_epoch_ = epoch;
  if (epoch == 0)
    return {adapt::even_samples(devices(), seen.global_batch), "the first epoch is even"};
  if (epoch == 1)
    return {inverse_split(now, seen.global_batch), "in inverse ratio to the time of a sample"};
  return {best_split(seen.global_batch), "the best split by straight lines"};
}

std::vector<std::int64_t> Cannikin::inverse_split(const std::vector<std::int64_t>& now,
                                                  std::int64_t batch) const {
  std::vector<double> rates(now.size(), 1e-9);
  for (std::size_t i = 0; i < now.size(); ++i) {
    const auto sums = sums_[i].find(now[i]);
    if (sums == sums_[i].end()) continue;
    rates[i] = static_cast<double>(now[i]) * sums->second.steps / sums->second.end;
  }
  return adapt::weighted_samples(devices(), rates, batch);
}

cost::StepCurves Cannikin::fit_lines(const std::map<std::int64_t, Sums>& sums) const {
  std::vector<std::pair<double, double>> ends, firsts;
  for (const auto& [samples, sum] : sums) {
    ends.emplace_back(static_cast<double>(samples), sum.end / sum.steps);
    firsts.emplace_back(static_cast<double>(samples), std::max(sum.first / sum.steps, 1e-12));
  }
  if (ends.empty()) return {{{{{1, 0}}}, {{{1, 0}}}}, {{{1, 0}}}, {0, 0}};
  return {{straight_line(firsts), straight_line(ends)}, straight_line(ends), {0, 0}};
}

std::vector<std::int64_t> Cannikin::best_split(std::int64_t batch) const {
  std::vector<cost::StepCurves> curves;
  for (const auto& sums : sums_) curves.push_back(fit_lines(sums));
  std::vector<cost::GroupMember> members;
  for (std::size_t i = 0; i < curves.size(); ++i)
    members.push_back({&curves[i], devices()[i].least, std::min(devices()[i].most, batch)});
  const auto steps = static_cast<double>(steps_);
  const auto best = cost::find_group_split(
      members, {.exchange = {early_ / steps, last_ / steps}, .blocking = 0}, batch);
  return best ? best->samples : std::vector<std::int64_t>();
}

Json Cannikin::learned() const {
  Json devices = Json::array();
  for (const auto& sums : sums_) {
    Json rows = Json::array();
    for (const auto& [samples, sum] : sums)
      rows.push_back({samples, sum.steps, sum.end, sum.first});
    devices.push_back({{"sums", std::move(rows)}});
  }
  return {{"devices", std::move(devices)},
          {"steps", steps_},
          {"epoch", planned_epoch_},
          {"early", early_},
          {"last", last_}};
}

Result<void> Cannikin::restore_learned(const Json& json, const std::string& where) {
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, where));
  std::vector<SumRows> rows;
  MOTLEY_RETURN_IF_ERROR(FieldReader(object)("devices", rows)("steps", steps_)(
                             "epoch", planned_epoch_)("early", early_)("last", last_)
                             .result());
  sums_.clear();
  for (const SumRows& device : rows) {
    std::map<std::int64_t, Sums>& sums = sums_.emplace_back();
    for (const std::vector<double>& row : device.sums) {
      if (row.size() != 4 || !(row[0] >= 1 && row[0] < 1e12 && row[1] >= 1 && row[2] > 0))
        return usage_error("policy.state", where + ": wanted samples, steps and seconds");
      sums[static_cast<std::int64_t>(row[0])] = {row[1], row[2], row[3]};
    }
  }
  if (sums_.size() != devices().size())
    return usage_error("policy.state", where + ": it is of another number of devices");
  return object.refuse_unknown();
}

}  // namespace motley::peers
