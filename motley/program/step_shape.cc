#include "motley/program/step_shape.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "motley/program/commit.h"
#include "motley/program/parts.h"

namespace motley::program {
namespace {

/// Returns whether the operator may follow forward and backward.
bool is_tail_op(std::string_view op) {
  static constexpr std::array<std::string_view, 11> kOps = {"motley::unpack",
                                                            "motley::update",
                                                            "motley::square_sums",
                                                            "motley::gradient_factor",
                                                            "motley::direction",
                                                            "motley::orthogonalize",
                                                            "motley::apply",
                                                            "motley::average",
                                                            "motley::assign",
                                                            "motley::report",
                                                            "motley::scaled_square_sums"};
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

}  // namespace

StepShape find_step_shape(const DeviceProgram& program) {
  StepShape shape;
  shape.tail = find_tail(program);
  // A commit is not an exchange of the step: it follows all of them.
  const auto commit = find_commit(program);
  const std::size_t decided = commit ? commit->at : program.instructions.size();
  std::map<InstructionId, std::size_t> exchange_at;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    shape.computes.push_back(instruction.lane == Lane::kCompute);
    if (instruction.lane == Lane::kCompute || i == decided) continue;
    StepShape::Exchange exchange{.position = i, .op = instruction.full_name()};
    exchange.bytes = priced_bytes(program, instruction);
    for (const InstructionId wait : instruction.waits) {
      exchange.after = std::max(exchange.after, wait.index() + 1);
    }
    exchange_at[InstructionId(static_cast<std::int64_t>(i))] = shape.exchanges.size();
    shape.exchanges.push_back(std::move(exchange));
  }
  for (std::size_t i = 0; i < shape.tail; ++i) {
    if (!shape.computes[i]) continue;
    for (const InstructionId wait : program.instructions[i].waits) {
      if (wait.index() == decided) continue;
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
      if (wait.index() == decided) continue;
      last = std::max(last, number[exchange_at.at(wait)]);
    }
    shape.updates.emplace_back(i, last);
  }
  return shape;
}

}  // namespace motley::program
