#include "motley/cost/trust/experience.h"

#include <fmt/format.h>

#include <functional>
#include <span>

namespace motley::cost {
namespace {

// Quantiles 5, 15, ..., 95 % of measured / predicted - 1 (docs/benchmarks.md, "Accuracy").
constexpr double kMeasuredStep[] = {-.10, -.05, -.035, -.02, -.005, .015, .035, .055, .08, .12};
constexpr double kModelledStep[] = {-.15, -.09, -.05, -.02, .00, .02, .04, .06, .11, .20};
// Widened by a quarter, because the distance between kinds was chosen on the same six.
constexpr double kCarriedStep[] = {-.16, -.10, -.07, -.04, -.02, -.01, .035, .08, .16, .27};
constexpr double kKindStep[] = {-.23, -.19, -.08, .00, .04, .08, .14, .23, .35, .56};
constexpr double kMeasuredMemory[] = {-.01, -.005, -.002, -.001, 0, 0, .001, .002, .005, .01};
constexpr double kModelledMemory[] = {-.19, -.13, -.08, -.04, -.01, 0, .01, .02, .04, .06};

Experience prior(const std::string& quantity, Origin origin) {
  if (quantity == "memory" && origin == Origin::kMeasured)
    return {{std::begin(kMeasuredMemory), std::end(kMeasuredMemory)},
            "Motley's benchmark of memory"};
  if (quantity == "memory")
    return {{std::begin(kModelledMemory), std::end(kModelledMemory)},
            "Motley's benchmark of memory of models that were not profiled"};
  switch (origin) {
    case Origin::kMeasured:
      return {{std::begin(kMeasuredStep), std::end(kMeasuredStep)},
              "Motley's benchmark of profiled models; no earlier runs here"};
    case Origin::kModelled:
      return {{std::begin(kModelledStep), std::end(kModelledStep)},
              "Motley's benchmark of models that were not profiled"};
    case Origin::kCarried:
      return {{std::begin(kCarriedStep), std::end(kCarriedStep)},
              "Motley's benchmark of profiles carried to other device kinds"};
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
  if (origin != Origin::kMeasured) return prior(wanted.quantity, origin);
  for (const Group& group : groups) {
    Experience trust;
    for (const PredictionEntry& entry : earlier)
      if (entry.quantity == wanted.quantity && group.has(entry))
        trust.residuals.push_back(entry.measured / entry.predicted - 1);
    if (trust.residuals.size() < kLeastRuns) continue;
    trust.basis = fmt::format("{} earlier runs {}", trust.residuals.size(), group.name);
    return trust;
  }
  return prior(wanted.quantity, origin);
}

}  // namespace motley::cost
