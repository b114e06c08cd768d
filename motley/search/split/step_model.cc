#include "motley/search/split/step_model.h"

#include <algorithm>
#include <utility>

#include "motley/base/check.h"

namespace motley::search {
namespace {

using Duty = std::pair<const StepCurves*, std::int64_t>;

/// Returns one duty for identical devices with the same number of samples.
std::vector<Duty> distinct_duties(const SplitEvaluator& evaluator, const BatchSplit& split) {
  std::vector<Duty> duties;
  for (std::size_t i = 0; i < split.devices.size(); ++i) {
    const Duty duty{&evaluator.curves(split.devices[i], SplitEvaluator::Setting::kShared),
                    split.samples[i]};
    if (duties.empty() || duties.back() != duty) duties.push_back(duty);
  }
  std::sort(duties.begin(), duties.end());
  duties.erase(std::unique(duties.begin(), duties.end()), duties.end());
  return duties;
}

}  // namespace

double model_step(const SplitEvaluator& evaluator, const BatchSplit& split) {
  MOTLEY_CHECK(!split.devices.empty() && split.devices.size() == split.samples.size());
  if (split.devices.size() == 1) {
    const StepCurves& curves = evaluator.curves(split.devices[0], SplitEvaluator::Setting::kAlone);
    return step_seconds(curves, {}, static_cast<double>(split.samples[0]));
  }
  const GroupExchanges times = evaluator.group_times(split.devices);
  const std::vector<Duty> duties = distinct_duties(evaluator, split);
  std::vector<double> slowest(times.exchange.size(), 0.0);
  for (const Duty& duty : duties) {
    const auto tails = update_tails(*duty.first);
    MOTLEY_CHECK(tails.size() == slowest.size());
    for (std::size_t k = 0; k < tails.size(); ++k) slowest[k] = std::max(slowest[k], tails[k]);
  }
  const std::vector<double> tails = exchange_tails(times.exchange, slowest);
  double seconds = 0.0;
  for (const auto& [curves, samples] : duties)
    seconds = std::max(seconds, step_seconds(*curves, tails, static_cast<double>(samples)));
  return times.blocking + seconds;
}

}  // namespace motley::search
