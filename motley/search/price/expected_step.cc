#include "motley/search/price/expected_step.h"

#include <algorithm>

namespace motley::search {
namespace {

constexpr int kJitterRuns = 200;  // runs; their median errs by a percent of a step's variation

}  // namespace

Result<Seconds> expected_step(Seconds simulated, const program::Program& program,
                              const cost::CostModel& model,
                              const std::map<std::string, simulate::Jitter>& jitter) {
  simulate::Conditions conditions;
  for (const program::DeviceProgram& device : program.devices)
    if (const auto found = jitter.find(device.device); found != jitter.end())
      conditions.jitter.insert(*found);
  if (conditions.jitter.empty()) return simulated;
  MOTLEY_ASSIGN(const auto outcomes, simulate::simulate_many(program, model, conditions,
                                                             {.runs = kJitterRuns, .steps = 1}));
  return std::max(simulated, Seconds(outcomes.step.median()));
}

}  // namespace motley::search
