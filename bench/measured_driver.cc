// Compares where a run's time went, predicted and measured, for bench/measured.py:
//   bench_measured_driver RUN-DIR
// Prints JSON: step_s and predicted_step_s (means over devices and steps of the traces); devices
// [{device, parts and predicted_parts {compute, exchange, waiting, idle: of its steps}, sum: of the
// measured parts}]; operators [{operator, predicted, measured}], largest deviation first.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/json.h"
#include "motley/control/run_directory.h"
#include "motley/report/report.h"

namespace {

using namespace motley;

double mean_step(const trace::Trace& trace) {
  double sum = 0;
  for (const trace::StepMark& mark : trace.steps) sum += static_cast<double>(mark.end - mark.begin);
  return 1e-9 * sum / static_cast<double>(std::max<std::size_t>(1, trace.steps.size()));
}

Json parts_to_json(const trace::Breakdown& parts, trace::Nanoseconds steps) {
  const auto share = [&](trace::Nanoseconds part) {
    return static_cast<double>(part) / static_cast<double>(steps);
  };
  return {{"compute", share(parts.compute)},
          {"exchange", share(parts.exposed_communication)},
          {"waiting", share(parts.waiting)},
          {"idle", share(parts.bubble)}};
}

/// Sums a device's steps, by its marks alone.
trace::Nanoseconds all_steps(const trace::Trace& trace, std::size_t device) {
  trace::Nanoseconds sum = 0;
  for (const trace::StepMark& mark : trace.steps)
    if (mark.device == static_cast<int>(device)) sum += mark.end - mark.begin;
  return sum;
}

Json describe(const trace::Trace& predicted, const trace::Trace& measured) {
  Json object = {{"step_s", mean_step(measured)},
                 {"predicted_step_s", mean_step(predicted)},
                 {"devices", Json::array()},
                 {"operators", Json::array()}};
  const auto before = trace::break_down(predicted), after = trace::break_down(measured);
  for (std::size_t d = 0; d < after.size(); ++d) {
    Json parts = parts_to_json(after[d], all_steps(measured, d));
    double sum = 0;
    for (const auto& [name, share] : parts.items()) sum += share.get<double>();
    object["devices"].push_back(
        {{"device", measured.devices[d]},
         {"parts", std::move(parts)},
         {"predicted_parts", parts_to_json(before[d], all_steps(predicted, d))},
         {"sum", sum}});
  }
  for (const report::OperatorShare& each : report::compare_operators(predicted, measured))
    object["operators"].push_back(
        {{"operator", each.name}, {"predicted", each.predicted}, {"measured", each.measured}});
  return object;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const auto run = motley::control::read_run(arguments[1]);
  if (!run || !run->predicted) {
    fmt::print(stderr, "{}\n", run ? "the run has no prediction" : run.error().message);
    return 1;
  }
  fmt::print("{}\n", describe(*run->predicted, run->measured).dump());
  return 0;
}
