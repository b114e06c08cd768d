#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cli/layers.h"
#include "motley/cli/prediction.h"
#include "motley/report/report.h"

namespace motley::cli {
namespace {

std::string table(const trace::Trace& trace) {
  const auto busy = trace::busy_share(trace);
  const auto peak = trace::peak_bytes(trace);
  std::string text = fmt::format("step {}, exposed communication {}\n\n  {:<10} {:>6} {:>12}\n",
                                 format_seconds(trace::median_step(trace)),
                                 format_seconds(trace::exposed_communication(trace)), "device",
                                 "busy", "peak memory");
  for (std::size_t d = 0; d < trace.devices.size(); ++d)
    text += fmt::format("  {:<10} {:>5.0f}% {:>12}\n", trace.devices[d], 100 * busy[d],
                        format_bytes(peak[d]));
  return text;
}

}  // namespace

Result<int> simulate_verb(const SimulateOptions& options, const Context& context) {
  if (options.planning.layers.is_given()) return simulate_layers(options, context);
  PlanningOptions planning = options.planning;
  plan::Plan plan;
  std::shared_ptr<const search::Costs> costs;
  Inputs inputs;
  if (options.plan.empty()) {
    MOTLEY_ASSIGN(Planned planned, make_plan(planning, context));
    if (!planned.outcome.plan) return tl::make_unexpected(infeasible_error(planned.outcome));
    plan = *planned.outcome.plan;
    inputs = std::move(planned.inputs);
    costs = planned.costs;
  } else {
    if (planning.global_batch == 0) planning.global_batch = 1;  // the plan file has its own
    MOTLEY_ASSIGN(inputs, read_inputs(planning, context));
    MOTLEY_ASSIGN(plan, read_plan(options.plan, inputs));
    inputs.global_batch = plan.global_batch;
    inputs.lowering = {plan.optimizer, plan.batch_norm, plan.bucket_bytes};
    MOTLEY_ASSIGN(costs, find_costs(inputs, planning, context));
  }
  MOTLEY_ASSIGN(const Prediction prediction, predict(inputs, *costs, plan, options.steps));
  const trace::Trace& trace = prediction.trace;
  phase(context, "simulate", [&] { return trace::print_trace(trace); });
  if (!options.trace.empty())
    MOTLEY_RETURN_IF_ERROR(write_file_atomic(options.trace, report::print_chrome_trace(trace)));
  Json busy = Json::object(), peak = Json::object();
  for (std::size_t d = 0; d < trace.devices.size(); ++d) {
    busy[trace.devices[d]] = trace::busy_share(trace)[d];
    peak[trace.devices[d]] = trace::peak_bytes(trace)[d].value;
  }
  Json object = {{"step_s", prediction.step.value},
                 {"peak_bytes", peak},
                 {"busy_share", busy},
                 {"exposed_comm_s", trace::exposed_communication(trace).value}};
  add_prediction(prediction, object);
  if (context.print_phase.empty() || context.json)
    context.result(table(trace) + "\n" + print_prediction(prediction), object);
  return kDone;
}

}  // namespace motley::cli
