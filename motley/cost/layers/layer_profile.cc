#include "motley/cost/layers/layer_profile.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "motley/base/text.h"
#include "motley/cluster/kinds.h"

namespace motley::cost {
namespace {

constexpr double kTrust = 2;              // largest use, in largest profiled micro-batches
constexpr double kLeastUse = 1.0 / 2000;  // of the peak, by a whole model at its best
constexpr double kLayerFall = 0.25;       // of a layer's time as the micro-batch grows
constexpr double kModelFall = 0.75;       // of all layers' time
constexpr double kFlopsPerWeight = 6;     // per token: 2 forward, 4 backward
constexpr double kBriefLookup = 0.1;      // of another layer's passes, on average

tl::unexpected<Error> profile_fault(const std::string& message) {
  return usage_error("cost.profile", message);
}

template <typename Map>
std::string keys(const Map& map) {
  std::vector<typename Map::key_type> all;
  for (const auto& [key, value] : map) all.push_back(key);
  return fmt::format("{}", fmt::join(all, " "));
}

using Member = Seconds LayerTime::*;

/// Returns a layer's minimum time at each profiled micro-batch and all larger ones, by micro-batch.
std::vector<std::pair<double, double>> envelope(const LayerTable& table, std::size_t layer,
                                                Member member) {
  std::vector<std::pair<double, double>> points;
  for (const auto& [batch, layers] : table)
    points.emplace_back(static_cast<double>(batch), (layers[layer].*member).value);
  for (std::size_t i = points.size() - 1; i-- > 0;)
    points[i].second = std::min(points[i].second, points[i + 1].second);
  return points;
}

double interpolate(const std::vector<std::pair<double, double>>& points, double batch) {
  const auto above = std::lower_bound(points.begin(), points.end(), std::pair(batch, -1.0));
  if (above == points.begin()) return above->second;
  if (above != points.end()) {
    const auto [x0, y0] = *(above - 1);
    const auto [x1, y1] = *above;
    return y0 + (y1 - y0) * (batch - x0) / (x1 - x0);
  }
  const auto [last, time] = points.back();
  const double proportional = time / last;
  if (points.size() == 1) return proportional * batch;
  const auto [previous, earlier] = points[points.size() - 2];
  return time + std::min((time - earlier) / (last - previous), proportional) * (batch - last);
}

std::string place(const LayerProfile& profile, const std::string& kind, int degree,
                  std::int64_t batch) {
  return fmt::format("{} on {}, tp {}, micro-batch {}", profile.model, kind, degree, batch);
}

/// Returns the operations of a layer, forward and backward of a micro-batch; 0 for the first one.
double work(const LayerProfile& profile, int degree, std::int64_t batch, std::size_t layer) {
  const auto sizes = profile.sizes.find(degree);
  if (layer == 0 || sizes == profile.sizes.end()) return 0;
  return kFlopsPerWeight * static_cast<double>(sizes->second[layer].weights) *
         static_cast<double>(profile.tokens) * static_cast<double>(batch);
}

double pass(const LayerTime& time) { return time.forward.value + time.backward.value; }

bool has_updates(const std::vector<LayerTime>& layers) {
  return std::any_of(layers.begin(), layers.end(),
                     [](const LayerTime& time) { return time.update.value != 0; });
}

/// Returns whether the first layer, a look-up, may have an unmeasurably short backward pass.
bool has_brief_lookup(const std::vector<LayerTime>& layers) {
  double others = 0;
  for (std::size_t i = 1; i < layers.size(); ++i) others += pass(layers[i]);
  return layers.size() > 1 && layers[0].backward.value == 0 &&
         layers[0].forward.value <= kBriefLookup * others / static_cast<double>(layers.size() - 1);
}

Result<void> verify_times(const std::vector<LayerTime>& layers, const std::string& where) {
  const bool is_updated = has_updates(layers), is_brief = has_brief_lookup(layers);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto& [forward, backward, update] = layers[i];
    for (const auto& [name, time] :
         {std::pair("forward", forward), {"backward", backward}, {"update", update}}) {
      if (time.value == 0 && (name == std::string_view("update")
                                  ? !is_updated
                                  : name == std::string_view("backward") && i == 0 && is_brief))
        continue;
      if (!(time.value > 0) || !std::isfinite(time.value))
        return profile_fault(fmt::format("{}, layer {}: {} takes {} s, wanted more than 0", where,
                                         i, name, time.value));
    }
  }
  return {};
}

Result<void> verify_peak(const LayerProfile& profile, int degree, std::int64_t batch,
                         const std::vector<LayerTime>& layers, double peak,
                         const std::string& where) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const double rate = work(profile, degree, batch, i) / pass(layers[i]);
    if (rate > peak)
      return profile_fault(
          fmt::format("{}, layer {}: {:.0f} Tflop/s, above the device's peak of {:.0f}; "
                      "are the times in seconds?",
                      where, i, rate / 1e12, peak / 1e12));
  }
  return {};
}

double use_of_peak(const LayerProfile& profile, int degree, std::int64_t batch,
                   const std::vector<LayerTime>& layers, double peak) {
  double flops = 0, seconds = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    flops += work(profile, degree, batch, i);
    seconds += pass(layers[i]);
  }
  return flops / seconds / peak;
}

/// Verifies forward and backward at a micro-batch against those at the one before.
Result<void> verify_growth(const std::vector<LayerTime>& layers, const std::vector<LayerTime>& next,
                           const std::string& where) {
  double all = 0, all_next = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    all += pass(layers[i]);
    all_next += pass(next[i]);
    if (pass(next[i]) < kLayerFall * pass(layers[i]))
      return profile_fault(
          fmt::format("{}, layer {}: takes {:.3g} s, {:.3g} s at the micro-batch before; "
                      "are rows exchanged?",
                      where, i, pass(next[i]), pass(layers[i])));
  }
  if (all_next < kModelFall * all)
    return profile_fault(
        fmt::format("{}: all layers take {:.3g} s, {:.3g} s at the micro-batch before; "
                    "are rows exchanged?",
                    where, all_next, all));
  return {};
}

Result<void> verify_table(const LayerProfile& profile, const std::string& kind, int degree,
                          const LayerTable& table, std::size_t layers, double peak) {
  double best_use = 0;
  for (auto at = table.begin(); at != table.end(); ++at) {
    const auto& [batch, times] = *at;
    const std::string where = place(profile, kind, degree, batch);
    if (times.size() != layers)
      return profile_fault(fmt::format("{}: {} layers, wanted {}", where, times.size(), layers));
    MOTLEY_RETURN_IF_ERROR(verify_times(times, where));
    MOTLEY_RETURN_IF_ERROR(verify_peak(profile, degree, batch, times, peak, where));
    best_use = std::max(best_use, use_of_peak(profile, degree, batch, times, peak));
    if (at == table.begin()) continue;
    const auto& [before, earlier] = *std::prev(at);
    if (batch > 2 * before)
      return profile_fault(fmt::format("{}: the one before is {}, at least {} is missing", where,
                                       before, 2 * before));
    MOTLEY_RETURN_IF_ERROR(verify_growth(earlier, times, where));
  }
  if (profile.tokens > 0 && profile.sizes.contains(degree) && best_use < kLeastUse)
    return profile_fault(
        fmt::format("{} on {}, tp {}: {:.2g} of the device's peak at best; are the times "
                    "in seconds?",
                    profile.model, kind, degree, best_use));
  return {};
}

Result<double> find_peak(const std::vector<PeakRate>& peaks, const std::string& kind) {
  std::vector<std::string> names;
  for (const auto& [name, rate] : peaks) {
    if (name == kind) return rate;
    names.push_back(name);
  }
  return profile_fault(
      fmt::format("unknown device kind '{}'{}", kind, suggestion_clause(kind, names)));
}

}  // namespace

Result<std::vector<LayerTime>> layer_times(const LayerProfile& profile, const std::string& kind,
                                           int tensor_parallel, std::int64_t micro_batch) {
  const auto degrees = profile.times.find(kind);
  if (degrees == profile.times.end())
    return profile_fault(fmt::format("{} was not profiled on {}; there is {}", profile.model, kind,
                                     keys(profile.times)));
  const auto table = degrees->second.find(tensor_parallel);
  if (table == degrees->second.end() || table->second.empty())
    return profile_fault(fmt::format("{} on {} was not profiled at tp {}; there is {}",
                                     profile.model, kind, tensor_parallel, keys(degrees->second)));
  const auto batch = static_cast<double>(micro_batch);
  const auto& [largest, layers] = *table->second.rbegin();
  if (micro_batch < 1 || batch > kTrust * static_cast<double>(largest))
    return profile_fault(fmt::format("{}: wanted 1 to {}, twice the largest that was profiled",
                                     place(profile, kind, tensor_parallel, micro_batch),
                                     2 * largest));
  for (const auto& [measured, others] : table->second)
    if (others.size() != layers.size())
      return profile_fault(fmt::format("{}: {} layers, wanted {} as at {}",
                                       place(profile, kind, tensor_parallel, measured),
                                       others.size(), layers.size(), largest));
  std::vector<LayerTime> times(layers.size());
  for (std::size_t i = 0; i < times.size(); ++i)
    for (const Member member : {&LayerTime::forward, &LayerTime::backward, &LayerTime::update})
      times[i].*member = Seconds(interpolate(envelope(table->second, i, member), batch));
  return times;
}

Result<void> check_outputs(const LayerProfile& profile) {
  for (const auto& [degree, sizes] : profile.sizes)
    for (std::size_t i = 0; i + 1 < sizes.size(); ++i)
      if (sizes[i].output.value <= 0)
        return usage_error(
            "cost.layers",
            fmt::format("{}: the bytes that layer {} gives to the next are not known",
                        profile.model, i));
  return {};
}

std::vector<PeakRate> built_in_peaks() {
  std::vector<PeakRate> peaks;
  for (const cluster::PlanningKind& kind : cluster::planning_kinds()) {
    const cluster::PeakRates& peak = kind.peak;
    double best = peak.f32.value;
    for (const auto& rate : {peak.f64, peak.tf32, peak.f16, peak.bf16})
      if (rate) best = std::max(best, rate->value);
    peaks.push_back({std::string(kind.name), best});
  }
  return peaks;
}

Result<std::vector<LayerSize>> layer_sizes(const LayerProfile& profile, int tensor_parallel) {
  const auto found = profile.sizes.find(tensor_parallel);
  if (found == profile.sizes.end())
    return profile_fault(fmt::format("{}: no bytes of layers at tp {}; there is {}", profile.model,
                                     tensor_parallel, keys(profile.sizes)));
  return found->second;
}

Result<void> verify_layer_profile(const LayerProfile& profile, const std::vector<PeakRate>& peaks) {
  if (profile.times.empty()) return profile_fault(profile.model + ": no times");
  std::optional<std::size_t> layers;
  for (const auto& [kind, degrees] : profile.times) {
    MOTLEY_ASSIGN(const double peak, find_peak(peaks, kind));
    bool is_any_known = false;
    for (const auto& [degree, table] : degrees) {
      if (table.empty())
        return profile_fault(fmt::format("{} on {}, tp {}: no times", profile.model, kind, degree));
      if (!layers) layers = table.begin()->second.size();
      // Planners leave out a degree without known bytes and report it.
      const auto sizes = profile.sizes.find(degree);
      const bool is_known = sizes != profile.sizes.end();
      is_any_known = is_any_known || is_known;
      if (is_known && sizes->second.size() != *layers)
        return profile_fault(fmt::format("{}, tp {}: bytes of {} layers, wanted {}", profile.model,
                                         degree, sizes->second.size(), *layers));
      MOTLEY_RETURN_IF_ERROR(verify_table(profile, kind, degree, table, *layers, peak));
    }
    if (!is_any_known) {
      MOTLEY_RETURN_IF_ERROR(layer_sizes(profile, degrees.begin()->first));
    }
  }
  return {};
}

std::vector<std::string> say_untimed(const LayerProfile& profile) {
  std::vector<std::string> notes;
  for (const auto& [kind, degrees] : profile.times) {
    bool is_brief = false, lacks_updates = false;
    for (const auto& [degree, table] : degrees)
      for (const auto& [batch, layers] : table) {
        is_brief = is_brief || (!layers.empty() && layers.front().backward.value == 0);
        lacks_updates = lacks_updates || !has_updates(layers);
      }
    if (is_brief)
      notes.push_back(
          fmt::format("{} on {}: the profile has 0 s for the first layer's backward pass, which is "
                      "less than it "
                      "resolves; it counts as nothing",
                      profile.model, kind));
    if (lacks_updates)
      notes.push_back(
          fmt::format("{} on {}: the profile has no update times; steps are short by the updates",
                      profile.model, kind));
  }
  return notes;
}

}  // namespace motley::cost
