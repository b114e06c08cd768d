// Convolutional networks on single K80 and P100 devices, and checkpoints to cloud storage.
#include "peers/import/cm_dare.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <set>

#include "bench/accuracy/row.h"
#include "peers/steps/checkpoint_fit.h"
#include "peers/steps/roofline.h"

namespace motley::bench {
namespace {

using peers::CmDareCheckpoint;
using peers::CmDareSpeed;

/// Cores and memory bandwidth from the makers' data sheets: one of a K80's two processors, a P100
/// and V100 of 16 GB. The V100's peak is from its data sheet; the set has the others'.
struct Chip {
  double cores = 0;
  BytesPerSecond bandwidth;
};
constexpr Chip kK80{2496, BytesPerSecond(240e9)}, kP100{3584, BytesPerSecond(732e9)},
    kV100{5120, BytesPerSecond(900e9)};
constexpr double kV100Peak = 15.7e12;
constexpr double kReferenceClock = 824e6;  // of the K80, 1/s

/// Scales an operator's start-up by clock cycles; a core does 2 flops per cycle.
peers::DeviceRates rates(double peak, const Chip& chip) {
  const double clock = peak / (2 * chip.cores);
  return {peak, chip.bandwidth, kReferenceClock / clock};
}
peers::DeviceRates rates_of(const CmDareSpeed& speed) {
  return rates(speed.peak_flops_per_second, speed.gpu == "K80" ? kK80 : kP100);
}

double mean_seconds(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// A measurement of a model. One fit predicts all models that were left out of it.
struct Item {
  std::string model;
  std::vector<double> readings;
};

/// Predicts all items by a fit without the models in `left_out`.
using FitWithout =
    std::function<Result<std::vector<double>>(const std::set<std::string>& left_out)>;

/// Leaves one model out, for every reading of every item. The interval's residuals are those of the
/// other models' readings, each predicted by a fit without it and without the model in question.
Result<std::vector<Case>> leave_one_out(const std::vector<Item>& items, const FitWithout& fit) {
  std::vector<Case> cases;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string& model = items[i].model;
    std::vector<double> residuals;
    for (std::size_t j = 0; j < items.size(); ++j) {
      if (items[j].model == model) continue;
      MOTLEY_ASSIGN(const std::vector<double> inner, fit({model, items[j].model}));
      for (const double reading : items[j].readings) residuals.push_back(reading / inner[j] - 1);
    }
    MOTLEY_ASSIGN(const std::vector<double> outer, fit({model}));
    const cost::PredictionInterval predicted = cost::conformal_interval(outer[i], residuals);
    for (const double reading : items[i].readings) cases.push_back({predicted, reading});
  }
  return cases;
}

/// What a prediction may know of the machine.
enum class Host {
  kUnknown,  ///< its drag is assumed to be 1
  kShared,   ///< other models' drag in the same session
};

FitWithout roofline_fit(const std::vector<CmDareSpeed>& speeds, Host host) {
  return [&speeds, host](const std::set<std::string>& left_out) -> Result<std::vector<double>> {
    std::vector<peers::RooflineSample> samples;
    for (const CmDareSpeed& speed : speeds)
      if (!left_out.contains(speed.model))
        samples.push_back(
            {work_of(speed), rates_of(speed), Seconds(mean_seconds(speed.step_s)), speed.session});
    MOTLEY_ASSIGN(const peers::RooflineFit fit, peers::fit_roofline(samples));
    std::vector<double> predicted;
    for (const CmDareSpeed& speed : speeds) {
      const double drag = host == Host::kShared ? fit.drag(speed.session) : 1.0;
      predicted.push_back(drag *
                          peers::estimate_time(fit.model, work_of(speed), rates_of(speed)).value);
    }
    return predicted;
  };
}

struct StepRow {
  const char* name;
  const char* gpu;  ///< "": all
  Host host;
  double to_reach;
  const char* published;
};

constexpr const char* kStepProtocol =
    "leave one model out; launches, flops in tiles of 32 channels and bytes, relative least "
    "squares "
    "with a drag for each session of measurements; {}; terms chosen with such errors in view";

Result<Row> step_row(const StepRow& row, const std::vector<CmDareSpeed>& all) {
  std::vector<CmDareSpeed> speeds;
  std::vector<Item> items;
  for (const CmDareSpeed& speed : all)
    if (*row.gpu == '\0' || speed.gpu == row.gpu) {
      speeds.push_back(speed);
      items.push_back({speed.model, speed.step_s});
    }
  MOTLEY_ASSIGN(std::vector<Case> cases, leave_one_out(items, roofline_fit(speeds, row.host)));
  const char* drag = row.host == Host::kShared ? "the drag is that of the session's other models"
                                               : "the machine is unknown: drag 1";
  return Row{row.name,      "time",       fmt::format(fmt::runtime(kStepProtocol), drag),
             row.published, row.to_reach, std::move(cases)};
}

/// Predicts unseen V100 steps: by the other kinds' fit, and transferred from the model's P100 step.
Result<std::vector<Row>> v100_rows(const std::string& folder,
                                   const std::vector<CmDareSpeed>& speeds) {
  std::vector<peers::RooflineSample> samples;
  for (const CmDareSpeed& speed : speeds)
    samples.push_back(
        {work_of(speed), rates_of(speed), Seconds(mean_seconds(speed.step_s)), speed.session});
  MOTLEY_ASSIGN(const peers::RooflineFit fit, peers::fit_roofline(samples));
  const peers::DeviceRates v100 = rates(kV100Peak, kV100);
  MOTLEY_ASSIGN(const std::vector<double> predicted, roofline_fit(speeds, Host::kUnknown)({}));
  std::vector<double> residuals;
  for (std::size_t i = 0; i < speeds.size(); ++i)
    residuals.push_back(mean_seconds(speeds[i].step_s) / predicted[i] - 1);
  Row analytic{"cm-dare: V100",
               "time",
               "fitted on K80 and P100 of all models; no fit sees a V100 step, but the scaling of "
               "start-up was chosen with these errors in view",
               "",
               0.05,
               {}};
  Row transferred{"cm-dare: V100 from P100",
                  "time",
                  "the model's own P100 step, each part scaled by the ratio of the rates; as above",
                  "",
                  0.05,
                  {}};
  for (const CmDareSpeed& speed : speeds) {
    static const std::map<std::string, std::string> names = {
        {"Res15", "res15"}, {"Res32", "res32"}, {"shakesmall", "shakesmall"}};
    if (speed.gpu != "P100" || !names.contains(speed.model)) continue;
    MOTLEY_ASSIGN(const double steps,
                  peers::read_trace_speed(
                      fmt::format("{}/speed/base/{}v100.csv", folder, names.at(speed.model))));
    const peers::StepWork work = work_of(speed);
    const double from_fit = peers::estimate_time(fit.model, work, v100).value;
    const double from_p100 = peers::carried_time(Seconds(mean_seconds(speed.step_s)), work,
                                                 fit.model, rates_of(speed), v100)
                                 .value;
    analytic.cases.push_back({cost::conformal_interval(from_fit, residuals), 1 / steps});
    transferred.cases.push_back({cost::conformal_interval(from_p100, residuals), 1 / steps});
  }
  return std::vector<Row>{std::move(analytic), std::move(transferred)};
}

FitWithout checkpoint_fit(const std::vector<CmDareCheckpoint>& checkpoints, Host host) {
  return [&checkpoints,
          host](const std::set<std::string>& left_out) -> Result<std::vector<double>> {
    std::vector<peers::CheckpointSample> samples;
    for (const CmDareCheckpoint& checkpoint : checkpoints)
      if (!left_out.contains(checkpoint.model))
        samples.push_back(
            {checkpoint.size, Seconds(mean_seconds(checkpoint.seconds)), checkpoint.campaign});
    MOTLEY_ASSIGN(const peers::CheckpointFit fit, peers::fit_checkpoint(samples));
    std::vector<double> predicted;
    for (const CmDareCheckpoint& checkpoint : checkpoints) {
      const double drag = host == Host::kShared ? fit.drag(checkpoint.campaign) : 1.0;
      predicted.push_back(drag * elastic::estimate_checkpoint(fit.model, checkpoint.size).value);
    }
    return predicted;
  };
}

Result<Row> checkpoint_row(const std::vector<CmDareCheckpoint>& checkpoints, Host host) {
  std::vector<Item> items;
  for (const CmDareCheckpoint& checkpoint : checkpoints)
    items.push_back({checkpoint.model, checkpoint.seconds});
  MOTLEY_ASSIGN(std::vector<Case> cases, leave_one_out(items, checkpoint_fit(checkpoints, host)));
  const bool is_shared = host == Host::kShared;
  return Row{is_shared ? "cm-dare: checkpoint" : "cm-dare: checkpoint, unknown storage",
             "time",
             fmt::format("leave one model out; fixed, bytes of weights and of graph; {}",
                         is_shared ? "a drag for each of the two campaigns, from its other models"
                                   : "drag 1"),
             "6.9 % least squares, 7.9 % linear in size",
             0.06,
             std::move(cases)};
}

}  // namespace

Rows cm_dare_rows(const std::string& data) {
  const std::string folder = data + "/cm-dare";
  MOTLEY_ASSIGN(const std::vector<CmDareSpeed> speeds, peers::read_cm_dare_speeds(folder));
  MOTLEY_ASSIGN(const std::vector<CmDareCheckpoint> checkpoints,
                peers::read_cm_dare_checkpoints(folder));
  constexpr const char* kEach = "3.4 % least squares, 23.1 % linear in flops";
  constexpr const char* kP100 = "7.6 % least squares, 24.8 % linear in flops";
  constexpr const char* kBoth = "5.6 % least squares, 28.6 % its authors' form";
  std::vector<Row> rows;
  for (const StepRow& row :
       {StepRow{"cm-dare: K80", "K80", Host::kShared, 0.03, kEach},
        StepRow{"cm-dare: P100", "P100", Host::kShared, 0.055, kP100},
        StepRow{"cm-dare: K80 and P100", "", Host::kShared, 0.045, kBoth},
        StepRow{"cm-dare: K80, unknown host", "K80", Host::kUnknown, 0.03, kEach},
        StepRow{"cm-dare: P100, unknown host", "P100", Host::kUnknown, 0.055, kP100},
        StepRow{"cm-dare: both, unknown host", "", Host::kUnknown, 0.045, kBoth}}) {
    MOTLEY_ASSIGN(rows.emplace_back(), step_row(row, speeds));
  }
  MOTLEY_ASSIGN(std::vector<Row> v100, v100_rows(folder, speeds));
  for (Row& row : v100) rows.push_back(std::move(row));
  for (const Host host : {Host::kShared, Host::kUnknown}) {
    MOTLEY_ASSIGN(rows.emplace_back(), checkpoint_row(checkpoints, host));
  }
  return rows;
}

}  // namespace motley::bench
