#include "motley/control/rehearsal/rehearsed_programs.h"

#include <algorithm>
#include <utility>

#include "motley/program/square_count.h"
#include "motley/simulate/drawn_times.h"

namespace motley::control {
namespace {

using simulate::StepByStep;
using trace::Nanoseconds;

/// Passes on all times of a model except those of operators.
class OtherCompute : public cost::CostModel {
 public:
  explicit OtherCompute(const cost::CostModel& model) : model_(model) {}
  Result<Seconds> collective_time(std::string_view op, Bytes bytes,
                                  const std::vector<std::string>& devices) const override {
    return model_.collective_time(op, bytes, devices);
  }
  Result<cost::Transfer> transfer(std::string_view op, const cost::ExchangeSize& size,
                                  const std::vector<std::string>& devices) const override {
    return model_.transfer(op, size, devices);
  }
  std::vector<double> link_capacities() const override { return model_.link_capacities(); }

 protected:
  const cost::CostModel& model_;
};

/// The cost of a move: its messages. Copies within a device are negligible.
class MoveCost : public OtherCompute {
 public:
  using OtherCompute::OtherCompute;
  Result<Times> times(const program::DeviceProgram& program) const override {
    return Times{std::vector<Seconds>(program.instructions.size()), {}};
  }
};

/// The cost of steps without computing square norms of gradients.
class WithoutSquares : public OtherCompute {
 public:
  using OtherCompute::OtherCompute;
  Result<Times> times(const program::DeviceProgram& program) const override {
    MOTLEY_ASSIGN(Times times, model_.times(program));
    for (std::size_t i = 0; i < times.seconds.size(); ++i)
      if (program::counts_squares(program.instructions[i])) times.seconds[i] = Seconds(0);
    return times;
  }
  double interference(const std::string& device,
                      const std::vector<std::string>& group) const override {
    return model_.interference(device, group);
  }
};

}  // namespace

RehearsedProgram::RehearsedProgram(StepByStep made) : steps(std::move(made)) {
  for (const program::DeviceProgram& device : steps.program().devices) {
    devices.insert(device.device);
    shapes.push_back(program::find_step_shape(device));
  }
}

std::vector<program::StepParts> RehearsedProgram::find_parts(const StepByStep::Times& times) const {
  std::vector<program::StepParts> parts;
  for (std::size_t rank = 0; rank < shapes.size(); ++rank) {
    const std::vector<double>& took = times.took[rank];
    std::vector<double> worked(took.size());
    double sum = 0;
    for (std::size_t i = 0; i < took.size(); ++i)
      worked[i] = sum += shapes[rank].computes[i] ? took[i] : 0;
    parts.push_back(program::find_step_parts(shapes[rank], worked, took));
  }
  return parts;
}

bool RehearsedProgram::uses_any(const std::set<std::string>& others) const {
  return std::any_of(devices.begin(), devices.end(),
                     [&](const std::string& each) { return others.contains(each); });
}

Result<void> check_rehearsal(const ChosenPlan& chosen, const simulate::Conditions& conditions) {
  if (!chosen.priced.costs)
    return usage_error("rehearsal.prices", "the plan has no prices, so it cannot be simulated");
  std::vector<std::string> devices;
  for (const DeviceId device : chosen.inputs.devices)
    devices.push_back(chosen.inputs.cluster.device(device).name);
  return simulate::check_conditions(conditions, devices, "the cluster");
}

Result<std::shared_ptr<RehearsedProgram>> lay_out_if_possible(
    const Inputs& inputs, const Planned& planned, const cost::CostModel& cost,
    const simulate::Conditions& conditions) {
  const std::shared_ptr<RehearsedProgram> none;
  if (!check_memory(inputs, planned)) return none;
  auto steps = StepByStep::make(planned.program, cost, conditions);
  if (steps) return std::make_shared<RehearsedProgram>(std::move(*steps));
  if (!steps.error().code.starts_with("cost.")) return tl::make_unexpected(steps.error());
  return none;
}

Result<void> RehearsedPrograms::enter(const std::shared_ptr<const program::Program>& program) {
  const auto known = std::find_if(all_.begin(), all_.end(), [&](const auto& each) {
    return each->steps.program() == *program;
  });
  if (known != all_.end()) {
    current_ = *known;
    return {};
  }
  MOTLEY_ASSIGN(StepByStep steps, StepByStep::make(program, *cost_, conditions_));
  current_ = all_.emplace_back(std::make_shared<RehearsedProgram>(std::move(steps)));
  return {};
}

Result<StepByStep::Times> RehearsedPrograms::run_uncounted(const Which& which, Nanoseconds begin) {
  if (!current_->uncounted) {
    const auto program = std::make_shared<const program::Program>(current_->steps.program());
    MOTLEY_ASSIGN(current_->uncounted,
                  StepByStep::make(program, WithoutSquares(*cost_), conditions_));
  }
  return current_->uncounted->run(which, begin);
}

Result<Nanoseconds> RehearsedPrograms::move_time(const program::Program& move) const {
  const bool is_empty =
      std::all_of(move.devices.begin(), move.devices.end(),
                  [](const program::DeviceProgram& device) { return device.instructions.empty(); });
  if (is_empty) return Nanoseconds{0};
  auto tasks = simulate::lay_out_program(move, MoveCost(*cost_));
  if (!tasks) return with_context("what a change moves", tasks.error());
  const auto times = simulate::find_times(tasks->graph);
  if (!times) return tl::make_unexpected(simulate::deadlock_error(move, *tasks, times.error()));
  return times->end;
}

}  // namespace motley::control
