// Unmeasured device kinds: forward operators of transformer blocks (Sailor's operator times, f16
// and f32) on six GPU kinds, each predicted from its data sheet with the other five's efficiencies.
#include <map>

#include "bench/accuracy/kind_blocks.h"
#include "bench/accuracy/row.h"
#include "peers/steps/efficiency_fit.h"

namespace motley::bench {
namespace {

double predict(const peers::KindSample& sample, const cost::KindEfficiency& efficiency) {
  return sample.launches * efficiency.launch.value + sample.flop_seconds / efficiency.flops +
         sample.byte_seconds / efficiency.bytes;
}

/// Returns residuals of each of the other kinds when it is left out too, as the interval's basis.
Result<std::vector<double>> inner_residuals(
    const std::map<std::string, std::vector<peers::KindSample>>& by_kind,
    const std::string& left_out) {
  std::vector<double> residuals;
  for (const auto& [inner, samples] : by_kind) {
    if (inner == left_out) continue;
    std::vector<peers::KindSample> fitted_on;
    for (const auto& [kind, others] : by_kind)
      if (kind != left_out && kind != inner)
        fitted_on.insert(fitted_on.end(), others.begin(), others.end());
    MOTLEY_ASSIGN(const auto efficiency, peers::fit_efficiency(fitted_on));
    for (const peers::KindSample& sample : samples)
      residuals.push_back(sample.measured.value / predict(sample, efficiency) - 1);
  }
  return residuals;
}

}  // namespace

Rows kind_rows(const std::string& data) {
  MOTLEY_ASSIGN(const KindBlocks blocks, read_kind_blocks(data));
  std::map<std::string, std::vector<peers::KindSample>> by_kind;
  for (const auto& [kind, of_kind] : blocks)
    for (const auto& [key, block] : of_kind) by_kind[kind].push_back(block.forward());
  Row row{.set = "device kinds never measured",
          .metric = "time",
          .protocol =
              "forward operators of transformer blocks on 6 GPU kinds; launch cost and two "
              "efficiencies fitted on 5, the sixth predicted from its data sheet"};
  row.to_reach = 0.2;
  for (const auto& [kind, samples] : by_kind) {
    std::vector<peers::KindSample> others;
    for (const auto& [other, theirs] : by_kind)
      if (other != kind) others.insert(others.end(), theirs.begin(), theirs.end());
    MOTLEY_ASSIGN(const auto efficiency, peers::fit_efficiency(others));
    MOTLEY_ASSIGN(const auto residuals, inner_residuals(by_kind, kind));
    for (const peers::KindSample& sample : samples)
      row.cases.push_back({cost::conformal_interval(predict(sample, efficiency), residuals),
                           sample.measured.value});
  }
  return std::vector<Row>{row};
}

}  // namespace motley::bench
