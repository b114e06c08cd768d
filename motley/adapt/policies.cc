#include "motley/adapt/policies.h"

#include <fmt/format.h>

#include <utility>

#include "motley/adapt/cannikin.h"
#include "motley/adapt/fixed_splits.h"
#include "motley/adapt/split_policy.h"
#include "motley/base/text.h"

namespace motley::adapt {
namespace {

using Made = std::unique_ptr<policy::Policy>;

Made make_motley(std::string_view, const SplitSetting& setting) {
  return std::make_unique<SplitPolicy>(setting.devices, setting.change_cost, setting.exchanges);
}

template <typename Policy>
Made make_baseline(std::string_view name, const SplitSetting& setting) {
  return std::make_unique<Policy>(name, setting.devices);
}

Made make_cannikin(std::string_view, const SplitSetting& setting) {
  return std::make_unique<Cannikin>(setting.devices, setting.epoch_steps);
}

/// A new policy is a line here.
constexpr std::pair<std::string_view, Made (*)(std::string_view, const SplitSetting&)>
    kSplitMakers[] = {
        {"motley", make_motley},
        {"even", make_baseline<EvenSplit>},
        {"hetseq", make_baseline<EvenSplit>},
        {"adaptdl", make_baseline<EvenSplit>},
        {"lb-bsp", make_baseline<StepMover>},
        {"cannikin", make_cannikin},
};

}  // namespace

std::vector<std::string> split_policy_names() {
  std::vector<std::string> names;
  for (const auto& [name, maker] : kSplitMakers) names.emplace_back(name);
  return names;
}

Result<std::unique_ptr<policy::Policy>> make_split_policy(std::string_view name,
                                                          const SplitSetting& setting) {
  for (const auto& [known, maker] : kSplitMakers)
    if (known == name) return maker(known, setting);
  const std::vector<std::string> names = split_policy_names();
  return usage_error("adapt.policy", fmt::format("unknown policy '{}', wanted one of {}{}", name,
                                                 join(names, " "), suggestion_clause(name, names)));
}

}  // namespace motley::adapt
