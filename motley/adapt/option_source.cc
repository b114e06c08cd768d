#include "motley/adapt/option_source.h"

#include <cstddef>

namespace motley::adapt {
namespace {

const policy::Share* find_share(const std::vector<policy::Share>& shares,
                                const std::string& device) {
  for (const policy::Share& share : shares)
    if (share.device == device) return &share;
  return nullptr;
}

}  // namespace

int find_option(const std::vector<BatchOption>& options, const std::vector<policy::Share>& shares) {
  int smallest = -1;
  std::size_t least = 0;
  for (std::size_t i = 0; i < options.size(); ++i) {
    const auto& devices = options[i].devices;
    if (devices.size() < shares.size() || (smallest >= 0 && devices.size() >= least)) continue;
    std::size_t found = 0;
    for (const DeviceCurve& curve : devices) found += find_share(shares, curve.device) != nullptr;
    if (found != shares.size()) continue;
    smallest = static_cast<int>(i);
    least = devices.size();
  }
  return smallest;
}

std::vector<policy::Share> shares_of(const policy::StepSeen& step) {
  std::vector<policy::Share> shares;
  for (const policy::DeviceStep& device : step.devices)
    if (device.samples > 0) shares.push_back({device.device, device.samples});
  return shares;
}

std::vector<policy::Share> shares_of(const BatchOption& option,
                                     const std::vector<std::int64_t>& samples) {
  std::vector<policy::Share> shares;
  for (std::size_t i = 0; i < samples.size(); ++i)
    if (samples[i] > 0) shares.push_back({option.devices[i].device, samples[i]});
  return shares;
}

std::vector<std::int64_t> samples_of(const BatchOption& option,
                                     const std::vector<policy::Share>& shares) {
  std::vector<std::int64_t> samples;
  for (const DeviceCurve& curve : option.devices) {
    const policy::Share* share = find_share(shares, curve.device);
    samples.push_back(share ? share->samples : 0);
  }
  return samples;
}

}  // namespace motley::adapt
