#include "peers/steps/roofline.h"

#include <fmt/format.h>

#include "motley/base/check.h"
#include "peers/steps/drag.h"

namespace motley::peers {
namespace {

/// Returns the factor of each constant of a Roofline.
std::vector<double> terms(const StepWork& work, const DeviceRates& device) {
  return {device.launch_scale, device.launch_scale * work.launches,
          work.flops.value / device.flops_per_second, (work.bytes / device.bandwidth).value};
}

Result<void> verify_rates(const DeviceRates& device, std::size_t sample) {
  if (device.flops_per_second > 0 && device.bandwidth.value > 0 && device.launch_scale > 0)
    return {};
  return usage_error(
      "cost.fit",
      fmt::format("sample {}: {} flops/s, {} bytes/s, launches scaled by {}; wanted all "
                  "more than 0",
                  sample, device.flops_per_second, device.bandwidth.value, device.launch_scale));
}

}  // namespace

Seconds estimate_time(const Roofline& model, const StepWork& work, const DeviceRates& device) {
  const std::vector<double> term = terms(work, device);
  return model.fixed * term[0] + model.launch * term[1] +
         Seconds(model.flops_share * term[2] + model.bytes_share * term[3]);
}

double RooflineFit::drag(int host) const { return GroupedFit{{}, drags}.drag(host); }

Result<RooflineFit> fit_roofline(const std::vector<RooflineSample>& samples) {
  std::vector<std::vector<double>> rows;
  std::vector<GroupedTarget> targets;
  for (const RooflineSample& sample : samples) {
    MOTLEY_RETURN_IF_ERROR(verify_rates(sample.device, rows.size()));
    rows.push_back(terms(sample.work, sample.device));
    targets.push_back({sample.measured.value, sample.host});
  }
  MOTLEY_ASSIGN(GroupedFit fit, fit_with_drags(rows, targets));
  const std::vector<double>& x = fit.coefficients;
  return RooflineFit{{Seconds(x[0]), Seconds(x[1]), x[2], x[3]}, std::move(fit.drags)};
}

double tile_padding(std::int64_t channels, std::int64_t tile) {
  MOTLEY_CHECK(channels > 0 && tile > 0);
  const std::int64_t tiles = (channels + tile - 1) / tile;
  return static_cast<double>(tiles * tile) / static_cast<double>(channels);
}

Seconds carried_time(Seconds measured, const StepWork& work, const Roofline& model,
                     const DeviceRates& source, const DeviceRates& target) {
  const Seconds there = estimate_time(model, work, source);
  if (!(there.value > 0)) return measured;
  return measured * (estimate_time(model, work, target) / there);
}

}  // namespace motley::peers
