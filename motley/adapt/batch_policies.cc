#include "motley/adapt/batch_policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/adapt/batch_baselines.h"
#include "motley/base/text.h"

namespace motley::adapt {
namespace {

using Made = std::unique_ptr<policy::Policy>;
using Source = std::unique_ptr<OptionSource>;

Made make_motley(const BatchSetting& setting, Source source) {
  return std::make_unique<BatchPolicy>(setting.batch, std::move(source));
}

/// Local batches of workers to choose from: 1, 2, 4, ... units.
std::vector<std::int64_t> local_batches(double most, std::int64_t unit) {
  std::vector<std::int64_t> batches;
  for (std::int64_t batch = unit; static_cast<double>(batch) <= most && batches.size() < 20;
       batch *= 2)
    batches.push_back(batch);
  return batches;
}

template <typename Policy>
Made make_of_passes(const BatchSetting& setting, Source source) {
  PassSettings settings;
  settings.initial_batch = setting.batch.initial_batch;
  settings.bounds = setting.batch.bounds;
  settings.rule = setting.batch.rule;
  settings.objective = setting.batch.objective.kind;
  settings.samples_per_pass = std::max<std::int64_t>(1, setting.samples_per_pass);
  settings.local_batches = local_batches(setting.batch.bounds.most, source->options().front().unit);
  return std::make_unique<Policy>(std::move(settings), std::move(source));
}

/// A new policy is a line here.
constexpr std::pair<std::string_view, Made (*)(const BatchSetting&, Source)> kBatchMakers[] = {
    {"motley", make_motley},
    {"adaptdl", make_of_passes<AdaptDlPolicy>},
    {"cannikin", make_of_passes<CannikinPolicy>},
    {"simigrad", make_of_passes<SimiGradPolicy>},
    {"jabas", make_of_passes<JabasPolicy>},
};

}  // namespace

std::vector<std::string> batch_policy_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : kBatchMakers) names.emplace_back(name);
  return names;
}

Result<std::unique_ptr<policy::Policy>> make_batch_policy(std::string_view name,
                                                          const BatchSetting& setting,
                                                          std::unique_ptr<OptionSource> source) {
  for (const auto& [known, maker] : kBatchMakers)
    if (known == name) return maker(setting, std::move(source));
  const std::vector<std::string> names = batch_policy_names();
  return usage_error("adapt.policy", fmt::format("unknown policy '{}', wanted one of {}{}", name,
                                                 join(names, " "), suggestion_clause(name, names)));
}

}  // namespace motley::adapt
