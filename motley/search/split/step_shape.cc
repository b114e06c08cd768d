#include "motley/search/split/step_shape.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "motley/base/check.h"
#include "motley/program/parts.h"

namespace motley::search {
namespace {

using program::DeviceProgram;
using program::Instruction;

/// What may stand behind forward and backward.
bool is_tail_op(std::string_view op) {
  static constexpr std::array<std::string_view, 10> kOps = {
      "motley::unpack",          "motley::update",    "motley::square_sums",
      "motley::gradient_factor", "motley::direction", "motley::orthogonalize",
      "motley::apply",           "motley::average",   "motley::assign",
      "motley::report"};
  return std::find(kOps.begin(), kOps.end(), op) != kOps.end();
}

std::size_t find_tail(const DeviceProgram& program) {
  std::size_t tail = program.instructions.size();
  for (std::size_t i = tail; i-- > 0;) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.lane != Lane::kCompute) continue;
    if (!is_tail_op(instruction.op)) break;
    tail = i;
  }
  return tail;
}

/// Seconds of all compute instructions before each position, at one batch.
std::vector<double> sum_before(const StepShape& shape, const cost::InstructionTimes& times,
                               double batch, double speed) {
  std::vector<double> sums(times.size() + 1, 0.0);
  for (std::size_t i = 0; i < times.size(); ++i) {
    sums[i + 1] = sums[i] + (shape.computes[i] ? times.at(i, batch).value / speed : 0.0);
  }
  return sums;
}

}  // namespace

StepShape find_step_shape(const DeviceProgram& program) {
  StepShape shape;
  shape.tail = find_tail(program);
  std::map<InstructionId, std::size_t> exchange_at;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    shape.computes.push_back(instruction.lane == Lane::kCompute);
    if (instruction.lane == Lane::kCompute) continue;
    StepShape::Exchange exchange{.position = i, .op = instruction.full_name()};
    exchange.bytes = program::priced_bytes(program, instruction);
    for (const InstructionId wait : instruction.waits) {
      exchange.after = std::max(exchange.after, wait.index() + 1);
    }
    exchange_at[InstructionId(static_cast<std::int64_t>(i))] = shape.exchanges.size();
    shape.exchanges.push_back(std::move(exchange));
  }
  for (std::size_t i = 0; i < shape.tail; ++i) {
    if (!shape.computes[i]) continue;
    for (const InstructionId wait : program.instructions[i].waits) {
      StepShape::Exchange& exchange = shape.exchanges[exchange_at.at(wait)];
      if (!exchange.blocking) exchange.waiter = i;
      exchange.blocking = true;
    }
  }
  std::vector<int> number(shape.exchanges.size(), -1);  // among the non-blocking ones
  int count = 0;
  for (std::size_t e = 0; e < number.size(); ++e) {
    if (!shape.exchanges[e].blocking) number[e] = count++;
  }
  int last = -1;
  for (std::size_t i = shape.tail; i < program.instructions.size(); ++i) {
    if (!shape.computes[i]) continue;
    for (const InstructionId wait : program.instructions[i].waits) {
      last = std::max(last, number[exchange_at.at(wait)]);
    }
    shape.updates.emplace_back(i, last);
  }
  return shape;
}

StepCurves build_curves(const StepShape& shape, const cost::InstructionTimes& times, double speed) {
  MOTLEY_CHECK(shape.computes.size() == times.size());
  StepCurves curves;
  for (const StepShape::Exchange& exchange : shape.exchanges) {
    if (!exchange.blocking) curves.ready.emplace_back();
  }
  std::vector<double> batches = times.batches();
  curves.update.assign(curves.ready.size(), 0.0);
  double before_updates = 0.0;  // tail instructions that wait for nobody
  for (const auto& [position, exchange] : shape.updates) {
    double seconds = times.at(position, batches.back()).value / speed;
    // Of a device whose pace depends on its step, no update takes less than its least: curves
    // bound.
    for (const double batch : batches)
      seconds = std::min(seconds, times.at(position, batch).value / speed);
    (exchange < 0 ? before_updates : curves.update[static_cast<std::size_t>(exchange)]) += seconds;
  }
  batches.push_back(2 * batches.back());
  for (const double batch : batches) {
    const std::vector<double> sums = sum_before(shape, times, batch, speed);
    curves.end.points.emplace_back(batch, sums[shape.tail] + before_updates);
    std::size_t k = 0;
    for (const StepShape::Exchange& exchange : shape.exchanges) {
      if (!exchange.blocking) curves.ready[k++].points.emplace_back(batch, sums[exchange.after]);
    }
  }
  return curves;
}

std::vector<double> blocking_slack(const StepShape& shape, const cost::InstructionTimes& times,
                                   double speed) {
  const std::vector<double> sums = sum_before(shape, times, times.batches().back(), speed);
  std::vector<double> slack;
  for (const StepShape::Exchange& exchange : shape.exchanges) {
    if (exchange.blocking) slack.push_back(sums[exchange.waiter] - sums[exchange.after]);
  }
  return slack;
}

}  // namespace motley::search
