#include "peers/policies/policies.h"

#include <algorithm>
#include <utility>

#include "motley/adapt/even_split.h"
#include "peers/policies/batch_baselines.h"
#include "peers/policies/cannikin.h"
#include "peers/policies/step_mover.h"

namespace motley::peers {
namespace {

using Made = std::unique_ptr<policy::Policy>;
using Source = std::unique_ptr<adapt::OptionSource>;

template <typename Policy>
Made make_plain(std::string_view name, const adapt::SplitSetting& setting) {
  return std::make_unique<Policy>(name, setting.devices);
}

Made make_cannikin(std::string_view, const adapt::SplitSetting& setting) {
  return std::make_unique<Cannikin>(setting.devices, setting.epoch_steps);
}

constexpr adapt::NamedSplitPolicy kSplits[] = {{"hetseq", make_plain<adapt::EvenSplit>},
                                               {"adaptdl", make_plain<adapt::EvenSplit>},
                                               {"lb-bsp", make_plain<StepMover>},
                                               {"cannikin", make_cannikin}};

/// Lists a worker's possible local batches: 1, 2, 4, ... units.
std::vector<std::int64_t> local_batches(double most, std::int64_t unit) {
  std::vector<std::int64_t> batches;
  for (std::int64_t batch = unit; static_cast<double>(batch) <= most && batches.size() < 20;
       batch *= 2)
    batches.push_back(batch);
  return batches;
}

template <typename Policy>
Made make_of_passes(const adapt::BatchSetting& setting, Source source) {
  PassSettings settings;
  settings.initial_batch = setting.batch.initial_batch;
  settings.bounds = setting.batch.bounds;
  settings.rule = setting.batch.rule;
  settings.objective = setting.batch.objective.kind;
  settings.samples_per_pass = std::max<std::int64_t>(1, setting.samples_per_pass);
  settings.local_batches = local_batches(setting.batch.bounds.most, source->options().front().unit);
  return std::make_unique<Policy>(std::move(settings), std::move(source));
}

constexpr adapt::NamedBatchPolicy kBatches[] = {{"adaptdl", make_of_passes<AdaptDlPolicy>},
                                                {"cannikin", make_of_passes<CannikinPolicy>},
                                                {"simigrad", make_of_passes<SimiGradPolicy>},
                                                {"jabas", make_of_passes<JabasPolicy>}};

/// Joins two lists, ours first.
template <typename Policy>
std::vector<Policy> joined(std::span<const Policy> ours, std::span<const Policy> others) {
  std::vector<Policy> all(ours.begin(), ours.end());
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

}  // namespace

adapt::SplitPolicies split_policies() {
  static const auto all = joined(adapt::split_policies(), adapt::SplitPolicies(kSplits));
  return all;
}

adapt::BatchPolicies batch_policies() {
  static const auto all = joined(adapt::batch_policies(), adapt::BatchPolicies(kBatches));
  return all;
}

}  // namespace motley::peers
