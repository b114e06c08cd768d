#include "motley/search/split/fixed_planners.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "motley/base/check.h"
#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/plan/shares.h"

namespace motley::search {
namespace {

constexpr std::uint64_t kStages = 0x57a9e5;  // seed of a separate sequence

using plan::Problem;
using Setting = SplitEvaluator::Setting;

SplitChoice no_split(std::string why) { return SplitChoice{.why = {std::move(why)}}; }

SplitChoice one_split(BatchSplit split) { return SplitChoice{.split = std::move(split)}; }

BatchSplit drop_idle(const std::vector<DeviceId>& devices,
                     const std::vector<std::int64_t>& samples) {
  BatchSplit split;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (samples[i] == 0) continue;
    split.devices.push_back(devices[i]);
    split.samples.push_back(samples[i]);
  }
  return split;
}

/// Draws splits; every allowed one can occur.
class SplitLottery {
 public:
  explicit SplitLottery(const SplitSpace& space) : space_(space), random_(space.problem().seed) {
    for (const DeviceId device : space.problem().devices) {
      if (space.cap(device, Setting::kShared) > 0) shared_.push_back(device);
      if (space.cap(device, Setting::kAlone) >= space.batch()) alone_.push_back(device);
    }
    std::stable_sort(shared_.begin(), shared_.end(),
                     [&](DeviceId a, DeviceId b) { return cap(a) > cap(b); });
  }

  std::optional<BatchSplit> draw() {
    const std::vector<std::size_t> sizes = allowed_sizes();
    if (sizes.empty()) return std::nullopt;
    const std::size_t size = sizes[random_.below(sizes.size())];
    if (size == 1) return BatchSplit{{alone_[random_.below(alone_.size())]}, {space_.batch()}};
    return fill(draw_group(size));
  }

 private:
  static constexpr int kTries = 100;

  std::int64_t cap(DeviceId device) const { return space_.cap(device, Setting::kShared); }

  std::int64_t total_cap(const std::vector<DeviceId>& devices) const {
    std::int64_t total = 0;
    for (const DeviceId device : devices) total += cap(device);
    return total;
  }

  /// Returns the sizes of allowed groups. More devices hold more, so only the batch limits them.
  std::vector<std::size_t> allowed_sizes() const {
    std::vector<std::size_t> sizes;
    if (!alone_.empty()) sizes.push_back(1);
    std::int64_t held = 0;
    for (std::size_t i = 0; i < shared_.size(); ++i) {
      held += cap(shared_[i]);
      const auto size = static_cast<std::int64_t>(i) + 1;
      if (size >= 2 && held >= space_.batch() && size <= space_.batch() / space_.least()) {
        sizes.push_back(i + 1);
      }
    }
    return sizes;
  }

  /// Draws a group that holds the batch, in random order; falls back to the largest.
  std::vector<DeviceId> draw_group(std::size_t size) {
    std::vector<DeviceId> devices = shared_;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      shuffle(devices);
      const std::vector<DeviceId> group(devices.begin(),
                                        devices.begin() + static_cast<std::ptrdiff_t>(size));
      if (total_cap(group) >= space_.batch()) return group;
    }
    devices.assign(shared_.begin(), shared_.begin() + static_cast<std::ptrdiff_t>(size));
    shuffle(devices);
    return devices;
  }

  void shuffle(std::vector<DeviceId>& devices) {
    for (std::size_t i = devices.size(); i > 1; --i) {
      std::swap(devices[i - 1], devices[random_.below(i)]);
    }
  }

  /// Draws each device's samples such that the rest fits on the devices after it.
  BatchSplit fill(const std::vector<DeviceId>& group) {
    std::vector<std::pair<DeviceId, std::int64_t>> drawn;
    std::int64_t left = space_.batch(), held = total_cap(group);
    auto after = static_cast<std::int64_t>(group.size());
    for (const DeviceId device : group) {
      held -= cap(device);
      --after;
      const std::int64_t least = std::max(space_.least(), left - held);
      const std::int64_t most = std::min(cap(device), left - after * space_.least());
      MOTLEY_CHECK(least <= most);
      const std::int64_t samples =
          least +
          static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most - least + 1)));
      drawn.emplace_back(device, samples);
      left -= samples;
    }
    std::sort(drawn.begin(), drawn.end());
    BatchSplit split;
    for (const auto& [device, samples] : drawn) {
      split.devices.push_back(device);
      split.samples.push_back(samples);
    }
    return split;
  }

  const SplitSpace& space_;
  SplitMix64 random_;
  std::vector<DeviceId> shared_;  // largest caps first
  std::vector<DeviceId> alone_;
};

}  // namespace

Result<SplitChoice> EqualPlanner::choose(const Study& study) const {
  const Problem& problem = study.space.problem();
  const auto devices = static_cast<std::int64_t>(problem.devices.size());
  if (problem.global_batch < devices) {
    return no_split(fmt::format(
        "global batch {} is smaller than the number of devices, {}: an equal split leaves {} "
        "without a sample; use --exclude or --planner auto",
        problem.global_batch, devices, devices - problem.global_batch));
  }
  return one_split(equal_split(problem));
}

Result<SplitChoice> ProportionalPlanner::choose(const Study& study) const {
  const Problem& problem = study.space.problem();
  const double share = std::max(
      1.0, static_cast<double>(problem.global_batch) / static_cast<double>(problem.devices.size()));
  std::vector<double> speeds;
  for (const DeviceId device : problem.devices) {
    const double seconds = inputs().evaluator->curves(device, Setting::kAlone).end.at(share);
    speeds.push_back(1.0 / std::max(seconds, 1e-9));
  }
  return one_split(drop_idle(problem.devices, plan::round_shares(speeds, problem.global_batch)));
}

Result<SplitChoice> ManualPlanner::choose(const Study& study) const {
  const Problem& problem = study.space.problem();
  const std::string given = fmt::format("batch split {}", fmt::join(problem.manual, ","));
  if (problem.manual.size() != problem.devices.size()) {
    std::vector<std::string> names;
    for (const DeviceId device : problem.devices) names.push_back(study.space.name(device));
    return usage_error("search.batch-split",
                       fmt::format("{}: found {} numbers, wanted one for each device: {}", given,
                                   problem.manual.size(), join(names, ", ")));
  }
  std::int64_t left = problem.global_batch;
  for (const std::int64_t samples : problem.manual) {
    if (samples < 0 || samples > left) {
      left = -1;
      break;
    }
    left -= samples;
  }
  if (left != 0) {
    return usage_error("search.batch-split",
                       fmt::format("{}: wanted numbers of 0 or more that sum to the global batch, "
                                   "{}",
                                   given, problem.global_batch));
  }
  return one_split(drop_idle(problem.devices, problem.manual));
}

Result<SplitChoice> RandomPlanner::choose(const Study& study) const {
  const Problem& problem = study.space.problem();
  const bool can_split_operators = inputs().graph != nullptr && problem.devices.size() > 1;
  // Separate sequences from those that draw the plan.
  if (can_split_operators && SplitMix64(~problem.seed ^ kStages).below(3) == 0) {
    SplitChoice choice;
    MOTLEY_ASSIGN(choice.stages, draw_fitting_stages(problem, *inputs().graph, choice.why));
    return choice;
  }
  if (can_split_operators && SplitMix64(~problem.seed).below(4) > 0) {
    SplitChoice choice;
    MOTLEY_ASSIGN(choice.region, draw_region(problem, *inputs().graph, choice.why));
    return choice;
  }
  std::optional<BatchSplit> split = SplitLottery(study.space).draw();
  if (!split) return SplitChoice{.why = study.space.explain_infeasible()};
  return one_split(std::move(*split));
}

Result<plan::PlanOutcome> find_baselines(const PlannerInputs& inputs,
                                         const plan::Problem& problem) {
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, EqualPlanner(inputs).plan(problem));
  if (outcome.plan) outcome.why.clear();
  outcome.plan.reset();
  outcome.reason = plan::Reason::kInfeasible;
  outcome.predicted_step = outcome.rounding = outcome.lower_bound = Seconds(0);
  outcome.peak.clear();
  outcome.idle = problem.devices;
  return outcome;
}

}  // namespace motley::search
