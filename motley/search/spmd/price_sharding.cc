#include "motley/search/spmd/price_sharding.h"

#include <utility>

#include "motley/program/memory.h"
#include "motley/search/spmd/prices.h"
#include "motley/simulate/simulate.h"
#include "motley/trace/trace.h"

namespace motley::search {
namespace {

/// Seconds of compute of each rank in a simulated step.
std::vector<double> compute_of(const trace::Trace& trace) {
  std::vector<double> seconds;
  for (const trace::Breakdown& part : trace::break_down(trace))
    seconds.push_back(static_cast<double>(part.compute) * 1e-9);
  return seconds;
}

Result<Bytes> peak_of(const cost::ProfileCost& model, const cluster::Device& device,
                      const program::DeviceProgram& program) {
  MOTLEY_ASSIGN(const std::vector<Bytes> scratch, model.scratch_bytes(program));
  const Bytes tensors = program::find_memory_peak(program, scratch).total;
  return tensors + cost::framework_bytes(device, tensors);
}

}  // namespace

Result<SpmdPlan> price_sharding(const SpmdQuestion& question, const std::vector<DeviceId>& devices,
                                synth::Sharding sharding) {
  MOTLEY_ASSIGN(const program::Program program,
                synth::lower_sharded(*question.graph, sharding, question.lowering));
  const cost::ProfileCost model = question.costs->model(*question.cluster);
  MOTLEY_ASSIGN(const trace::Trace trace, simulate::simulate(program, model));
  SpmdPlan plan{devices, std::move(sharding), trace::median_step(trace),
                {},      compute_of(trace),   true};
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const cluster::Device& device = question.cluster->device(devices[rank]);
    MOTLEY_ASSIGN(const Bytes peak, peak_of(model, device, program.devices[rank]));
    plan.peaks.push_back(peak);
    plan.fits = plan.fits && (!device.memory || peak <= *device.memory);
  }
  return plan;
}

Result<std::vector<double>> whole_speeds(const SpmdQuestion& question, const SpmdSpace& space) {
  std::vector<double> speeds;
  for (const DeviceId id : question.devices) {
    MOTLEY_ASSIGN(SpmdPrices prices, SpmdPrices::make(*question.graph, space, *question.cluster,
                                                      *question.costs, {id}, {1.0}));
    double seconds = 0;
    for (std::size_t i = 0; i < space.ways.size(); ++i)
      if (space.is_needed[i])
        seconds += prices.compute(OpId(static_cast<std::int64_t>(i)), space.ways[i][0])[0];
    speeds.push_back(1 / seconds);
  }
  return speeds;
}

}  // namespace motley::search
