#include "motley/cost/experience.h"

#include <fmt/format.h>

#include <functional>
#include <span>

namespace motley::cost {
namespace {

// Quantiles 5, 15, ..., 95 % of measured / predicted - 1 in the benchmark (docs/benchmarks.md,
// "Accuracy").
constexpr double kMeasuredStep[] = {-.12, -.07, -.04, -.02, .00, .02, .04, .06, .10, .15};
constexpr double kModelledStep[] = {-.18, -.12, -.08, -.04, .00, .03, .06, .10, .15, .22};
constexpr double kKindStep[] = {-.28, -.22, -.16, -.08, .00, .06, .13, .20, .30, .42};
constexpr double kMemory[] = {-.03, -.02, -.01, -.005, .00, .00, .005, .01, .02, .03};

Experience prior(const std::string& quantity, Origin origin) {
  if (quantity == "memory")
    return {{std::begin(kMemory), std::end(kMemory)}, "Motley's benchmark of memory"};
  switch (origin) {
    case Origin::kMeasured:
      return {{std::begin(kMeasuredStep), std::end(kMeasuredStep)},
              "Motley's benchmark of profiled models; no earlier runs here"};
    case Origin::kModelled:
      return {{std::begin(kModelledStep), std::end(kModelledStep)},
              "Motley's benchmark of models that were not profiled"};
    case Origin::kKinds:
      break;
  }
  return {{std::begin(kKindStep), std::end(kKindStep)},
          "Motley's benchmark of device kinds that nobody measured"};
}

}  // namespace

Experience find_experience(const std::vector<PredictionEntry>& earlier,
                           const PredictionEntry& wanted, Origin origin) {
  struct Group {
    const char* name;
    std::function<bool(const PredictionEntry&)> has;
  };
  const Group groups[] = {
      {"of this model on this cluster",
       [&](const auto& entry) {
         return entry.subject == wanted.subject && entry.cluster == wanted.cluster;
       }},
      {"on this cluster", [&](const auto& entry) { return entry.cluster == wanted.cluster; }},
      {"in this profile store", [](const auto&) { return true; }}};
  for (const Group& group : groups) {
    Experience trust;
    for (const PredictionEntry& entry : earlier)
      if (entry.quantity == wanted.quantity && group.has(entry))
        trust.residuals.push_back(entry.measured / entry.predicted - 1);
    if (origin == Origin::kKinds || trust.residuals.size() < kLeastRuns) continue;
    trust.basis = fmt::format("{} earlier runs {}", trust.residuals.size(), group.name);
    return trust;
  }
  return prior(wanted.quantity, origin);
}

}  // namespace motley::cost
