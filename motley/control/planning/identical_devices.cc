#include "motley/control/planning/identical_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "motley/base/statistics.h"
#include "motley/control/planning/timing_work.h"
#include "motley/cost/device_keys.h"

namespace motley::control {
namespace {

constexpr double kLeastSlower = 0.1, kDeviations = 3;
constexpr int kLeastRounds = 3;  // fewer show no variation

/// Returns the median, over common operators, of a device's time to the median of the others', in
/// one round or of the rounds' medians.
double ratio_of(const std::vector<EqualTimes>& equals, std::size_t own,
                std::optional<std::size_t> round) {
  const auto value = [&](const std::vector<double>& rounds) {
    return round && *round < rounds.size() ? rounds[*round] : median(rounds);
  };
  std::vector<double> ratios;
  for (const auto& [key, rounds] : equals[own].seconds) {
    std::vector<double> others;
    for (std::size_t i = 0; i < equals.size(); ++i) {
      const auto its = equals[i].seconds.find(key);
      if (i != own && its != equals[i].seconds.end()) others.push_back(value(its->second));
    }
    if (const double usual = median(std::move(others)); usual > 0)
      ratios.push_back(value(rounds) / usual);
  }
  return ratios.empty() ? 1 : median(std::move(ratios));
}

std::size_t rounds_of(const EqualTimes& times) {
  return times.seconds.empty() ? 0 : times.seconds.begin()->second.size();
}

class Comparing {
 public:
  Comparing(const Inputs& inputs, std::string torch, const Outside& outside)
      : inputs_(inputs),
        torch_(std::move(torch)),
        outside_(outside),
        equals_(find_equals(inputs, torch_)) {}

  Result<std::vector<Compared>> run(int rounds) {
    tell();
    MOTLEY_ASSIGN(const auto operators, operator_tasks());
    const auto operator_waves = side_by_side(inputs_, operators);
    const auto pace_waves = side_by_side(inputs_, pace_tasks());
    for (int round = 0; round < std::max(rounds, kLeastRounds); ++round) {
      for (const auto& wave : operator_waves) MOTLEY_RETURN_IF_ERROR(time_operators(wave));
      for (const auto& wave : pace_waves) MOTLEY_RETURN_IF_ERROR(time_steps(wave));
    }
    std::vector<Compared> compared;
    for (const std::vector<DeviceId>& equal : equals_) {
      std::vector<EqualTimes> times;
      for (const DeviceId id : equal) times.push_back({id, seconds_[id]});
      for (const Compared& each : compare_times(times)) compared.push_back(each);
    }
    return compared;
  }

 private:
  void tell() {
    for (const std::vector<DeviceId>& equal : equals_)
      outside_.listener.note(fmt::format("profile: {} devices like {} against each other",
                                         equal.size(), inputs_.cluster.device(equal[0]).name));
  }

  Result<std::vector<TaskPrograms>> operator_tasks() const {
    const std::int64_t part = std::max<std::int64_t>(
        1, inputs_.global_batch / static_cast<std::int64_t>(inputs_.devices.size()));
    MOTLEY_ASSIGN(const auto programs, reference_programs(inputs_, {part}, 1));
    std::vector<TaskPrograms> tasks;
    for (const std::vector<DeviceId>& equal : equals_)
      for (const DeviceId id : equal)
        if (!cost::has_pace(inputs_.cluster, id))
          tasks.push_back({{id, OperatorTask::Setting::kAlone,
                            cost::device_key(inputs_.cluster.device(id), torch_)},
                           programs});
    return tasks;
  }

  /// Neighbours work, too, so their steps are measured at the same time.
  std::vector<PaceWork> pace_tasks() const {
    std::vector<PaceWork> tasks;
    std::set<DeviceId> done;
    for (const std::vector<DeviceId>& equal : equals_)
      for (const DeviceId id : equal) {
        if (!cost::has_pace(inputs_.cluster, id) || done.contains(id)) continue;
        PaceWork work{{id}, {}};
        for (const DeviceId other : cost::neighbours(inputs_.cluster, id))
          work.devices.push_back(other);
        for (const DeviceId each : work.devices)
          work.samples.push_back(cost::usual_samples(inputs_.cluster, each, inputs_.global_batch));
        done.insert(work.devices.begin(), work.devices.end());
        tasks.push_back(std::move(work));
      }
    return tasks;
  }

  Result<void> time_operators(const std::vector<TaskPrograms>& wave) {
    std::vector<TimingTask> tasks;
    for (const TaskPrograms& each : wave) tasks.push_back(operator_work(inputs_, each)[0]);
    MOTLEY_ASSIGN(const auto times, outside_.workers.time_programs(tasks));
    for (std::size_t i = 0; i < wave.size(); ++i) {
      std::map<std::string, std::vector<double>> round;
      for (const run::OpTime& time : times[i]) round[time.key].push_back(time.median.value);
      for (auto& [key, values] : round)
        seconds_[wave[i].task.device][key].push_back(median(std::move(values)));
    }
    return {};
  }

  Result<void> time_steps(const std::vector<PaceWork>& wave) {
    MOTLEY_ASSIGN(const auto times, time_paces(inputs_, wave, outside_.workers));
    for (std::size_t i = 0; i < wave.size(); ++i)
      for (std::size_t k = 0; k < wave[i].devices.size(); ++k)
        seconds_[wave[i].devices[k]]["step"].push_back(times[i][k].step.median.value);
    return {};
  }

  const Inputs& inputs_;
  const std::string torch_;
  const Outside& outside_;
  const std::vector<std::vector<DeviceId>> equals_;
  std::map<DeviceId, std::map<std::string, std::vector<double>>> seconds_;
};

}  // namespace

std::vector<Compared> compare_times(const std::vector<EqualTimes>& equals) {
  std::vector<Compared> compared;
  for (std::size_t own = 0; own < equals.size(); ++own) {
    std::vector<double> by_round;
    for (std::size_t round = 0; round < rounds_of(equals[own]); ++round)
      by_round.push_back(ratio_of(equals, own, round));
    const double deviation = kMadToDeviation * find_scatter(std::move(by_round)).deviation;
    compared.push_back({equals[own].device, ratio_of(equals, own, std::nullopt),
                        1 + std::max(kLeastSlower, kDeviations * deviation)});
  }
  return compared;
}

std::vector<std::vector<DeviceId>> find_equals(const Inputs& inputs, const std::string& torch) {
  std::map<cost::DeviceKey, std::vector<DeviceId>> by_key;
  for (const DeviceId id : inputs.devices) {
    const cluster::Device& device = inputs.cluster.device(id);
    if (device.kind != "cpu" && device.kind != "cuda") continue;
    const bool is_paced = cost::has_pace(inputs.cluster, id);
    by_key[is_paced ? cost::emulated_key(inputs.cluster, id, torch)
                    : cost::device_key(device, torch)]
        .push_back(id);
  }
  std::vector<std::vector<DeviceId>> equals;
  for (auto& [key, devices] : by_key)
    if (devices.size() > 1) equals.push_back(std::move(devices));
  return equals;
}

Result<std::vector<Compared>> compare_equals(const Inputs& inputs, int rounds,
                                             const Outside& outside) {
  MOTLEY_ASSIGN(const std::string torch, outside.workers.torch_version());
  return Comparing(inputs, engine_version(inputs, torch), outside).run(rounds);
}

Inputs with_slower_last(Inputs inputs, const std::vector<Compared>& compared) {
  std::set<DeviceId> slower;
  for (const Compared& each : compared)
    if (each.is_slower()) slower.insert(each.device);
  std::stable_partition(inputs.devices.begin(), inputs.devices.end(),
                        [&](DeviceId id) { return !slower.contains(id); });
  return inputs;
}

}  // namespace motley::control
