#include "motley/adapt/policies.h"

#include <fmt/format.h>

#include <string>

#include "motley/adapt/even_split.h"
#include "motley/adapt/split_policy.h"
#include "motley/base/text.h"

namespace motley::adapt {
namespace {

std::unique_ptr<policy::Policy> make_motley(std::string_view, const SplitSetting& setting) {
  return std::make_unique<SplitPolicy>(setting.devices, setting.change_cost, setting.exchanges);
}

std::unique_ptr<policy::Policy> make_even(std::string_view name, const SplitSetting& setting) {
  return std::make_unique<EvenSplit>(name, setting.devices);
}

constexpr NamedSplitPolicy kSplitPolicies[] = {{"motley", make_motley}, {"even", make_even}};

}  // namespace

SplitPolicies split_policies() { return kSplitPolicies; }

Result<std::unique_ptr<policy::Policy>> make_split_policy(std::string_view name,
                                                          const SplitSetting& setting,
                                                          SplitPolicies among) {
  std::vector<std::string> names;
  for (const NamedSplitPolicy& each : among) {
    if (each.name == name) return each.make(each.name, setting);
    names.emplace_back(each.name);
  }
  return usage_error("adapt.policy", fmt::format("unknown policy '{}', wanted one of {}{}", name,
                                                 join(names, " "), suggestion_clause(name, names)));
}

}  // namespace motley::adapt
