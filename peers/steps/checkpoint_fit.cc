#include "peers/steps/checkpoint_fit.h"

#include "peers/steps/drag.h"

namespace motley::peers {

double CheckpointFit::drag(int campaign) const { return GroupedFit{{}, drags}.drag(campaign); }

Result<CheckpointFit> fit_checkpoint(const std::vector<CheckpointSample>& samples) {
  std::vector<std::vector<double>> rows;
  std::vector<GroupedTarget> targets;
  for (const CheckpointSample& sample : samples) {
    rows.push_back({1.0, static_cast<double>(sample.size.weights.value),
                    static_cast<double>(sample.size.graph.value)});
    targets.push_back({sample.measured.value, sample.campaign});
  }
  MOTLEY_ASSIGN(GroupedFit fit, fit_with_drags(rows, targets));
  const std::vector<double>& x = fit.coefficients;
  return CheckpointFit{{Seconds(x[0]), Seconds(x[1]), Seconds(x[2])}, std::move(fit.drags)};
}

}  // namespace motley::peers
