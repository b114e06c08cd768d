#include "motley/adapt/batch_policies.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "motley/base/text.h"

namespace motley::adapt {
namespace {

std::unique_ptr<policy::Policy> make_motley(const BatchSetting& setting,
                                            std::unique_ptr<OptionSource> source) {
  return std::make_unique<BatchPolicy>(setting.batch, std::move(source));
}

constexpr NamedBatchPolicy kBatchPolicies[] = {{"motley", make_motley}};

}  // namespace

BatchPolicies batch_policies() { return kBatchPolicies; }

Result<std::unique_ptr<policy::Policy>> make_batch_policy(std::string_view name,
                                                          const BatchSetting& setting,
                                                          std::unique_ptr<OptionSource> source,
                                                          BatchPolicies among) {
  std::vector<std::string> names;
  for (const NamedBatchPolicy& each : among) {
    if (each.name == name) return each.make(setting, std::move(source));
    names.emplace_back(each.name);
  }
  return usage_error("adapt.policy", fmt::format("unknown policy '{}', wanted one of {}{}", name,
                                                 join(names, " "), suggestion_clause(name, names)));
}

}  // namespace motley::adapt
