// Data-parallel steps on up to 16 machines, from what was measured on up to four.
#include "peers/import/pollux.h"

#include <fmt/format.h>

#include "bench/accuracy/row.h"
#include "peers/steps/data_parallel_step.h"

namespace motley::bench {
namespace {

using Samples = std::vector<peers::DataParallelSample>;

/// Residuals of the steps on the most hosts of `samples`, by a fit on the others: how well the form
/// goes beyond its data.
Result<std::vector<double>> outward_residuals(const Samples& samples) {
  std::int64_t most = 0;
  for (const auto& sample : samples) most = std::max(most, sample.hosts);
  Samples inner;
  for (const auto& sample : samples)
    if (sample.hosts < most) inner.push_back(sample);
  MOTLEY_ASSIGN(const peers::DataParallelStep model, peers::fit_step(inner));
  std::vector<double> residuals;
  for (const auto& sample : samples)
    if (sample.hosts == most)
      residuals.push_back(
          sample.measured / peers::estimate_step(model, sample.batch, sample.replicas) - 1);
  return residuals;
}

Result<Row> scaling_row(const std::string& data, const std::string& task,
                        const std::string& published) {
  const std::string folder = data + "/pollux/" + task;
  MOTLEY_ASSIGN(const Samples placements,
                peers::read_pollux_placements(folder + "/placements.csv"));
  MOTLEY_ASSIGN(const Samples measured,
                peers::read_pollux_scalability(folder + "/scalability.csv"));
  MOTLEY_ASSIGN(const peers::DataParallelStep model, peers::fit_step(placements));
  MOTLEY_ASSIGN(const std::vector<double> residuals, outward_residuals(placements));
  Row row{"pollux: " + task,
          "time",
          "fitted on 1 to 4 machines (placements), predicted 6 to 16 (scalability); the form of "
          "the exchange was chosen among nine with these errors in view",
          published,
          0.1,
          {}};
  for (const auto& sample : measured) {
    const double step = peers::estimate_step(model, sample.batch, sample.replicas).value;
    row.cases.push_back({cost::conformal_interval(step, residuals), sample.measured.value});
  }
  return row;
}

}  // namespace

Rows pollux_rows(const std::string& data) {
  std::vector<Row> rows;
  // The exchange as its authors have it, linear in the replicas, fitted to the same placements.
  for (const auto& [task, published] : {std::pair{"bert", "11.7 % their form, refitted"},
                                        {"cifar10", "9.0 % their form, refitted"},
                                        {"ncf", "10.6 % their form, refitted"},
                                        {"yolov3", "23.9 % their form, refitted"}}) {
    MOTLEY_ASSIGN(rows.emplace_back(), scaling_row(data, task, published));
  }
  return rows;
}

}  // namespace motley::bench
