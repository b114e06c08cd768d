#include "motley/synth/exchange_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "motley/program/parts.h"

namespace motley::synth {
namespace {

using program::Instruction;

constexpr double kLeastGain = 0.01;

/// The n-th exchange on all devices.
template <typename Program>
auto find_exchanges(Program& program) {
  using Item = decltype(&program.devices[0].instructions[0]);
  std::vector<std::vector<Item>> joints;
  for (auto& device : program.devices) {
    std::size_t n = 0;
    for (auto& instruction : device.instructions) {
      if (!program::is_collective(instruction.op)) continue;
      if (n == joints.size()) joints.emplace_back();
      joints[n++].push_back(&instruction);
    }
  }
  return joints;
}

/// The most elements that a member gives another; at least 1.
template <typename Joint>
std::int64_t largest_part(const Joint& joint) {
  std::int64_t largest = 1;
  for (const Instruction* instruction : joint)
    if (const auto parts = program::find_exchange_parts(*instruction))
      for (const std::int64_t count : parts->counts) largest = std::max(largest, count);
  return largest;
}

void set_method(Instruction& instruction, ExchangeMethod method, std::int64_t largest) {
  if (method == ExchangeMethod::kNative) return;
  instruction.overload = exchange_method_name(method);
  if (instruction.op == program::kAllToAll && method == ExchangeMethod::kPadded)
    instruction.arguments.push_back({largest});
}

/// The largest over the members: what the simulator prices an exchange by.
std::int64_t most_bytes(const program::Program& program,
                        const std::vector<const Instruction*>& joint, ExchangeMethod method,
                        std::int64_t largest) {
  std::int64_t most = 0;
  for (std::size_t rank = 0; rank < joint.size(); ++rank) {
    Instruction tried = *joint[rank];
    set_method(tried, method, largest);
    most = std::max(most, program::priced_bytes(program.devices[rank], tried).value);
  }
  return most;
}

}  // namespace

Result<void> set_methods(program::Program& program, const ExchangeMethods& methods) {
  if (methods.empty()) return {};
  const auto joints = find_exchanges(program);
  if (joints.size() != methods.size())
    return stale_error("synth.stale-plan",
                       fmt::format("the plan says how {} exchanges are carried out, its program "
                                   "has {}; plan again",
                                   methods.size(), joints.size()));
  for (std::size_t n = 0; n < joints.size(); ++n) {
    const auto known = program::methods_of(joints[n][0]->op);
    if (std::find(known.begin(), known.end(), methods[n]) == known.end())
      return usage_error("synth.exchange-method",
                         fmt::format("exchange {} of the plan is {}, which {} cannot be", n,
                                     exchange_method_name(methods[n]), joints[n][0]->op));
    const std::int64_t largest = largest_part(joints[n]);
    for (Instruction* instruction : joints[n]) set_method(*instruction, methods[n], largest);
  }
  return {};
}

std::vector<std::string> exchange_operators(const program::Program& program) {
  std::vector<std::string> operators;
  for (const auto& joint : find_exchanges(program)) operators.push_back(joint[0]->op);
  return operators;
}

ExchangeMethods choose_methods(const program::Program& program, const ExchangeSeconds& seconds) {
  ExchangeMethods chosen;
  for (const auto& joint : find_exchanges(program)) {
    const std::string& op = joint[0]->op;
    const std::int64_t largest = largest_part(joint);
    ExchangeMethod best = ExchangeMethod::kNative;
    double least = 0;
    for (const ExchangeMethod method : program::methods_of(op)) {
      const auto bytes = static_cast<double>(most_bytes(program, joint, method, largest));
      const double time = seconds(program::collective_name(op, method), bytes);
      if (method != ExchangeMethod::kNative && !(time < least * (1 - kLeastGain))) continue;
      best = method;
      least = time;
    }
    chosen.push_back(best);
  }
  if (std::count(chosen.begin(), chosen.end(), ExchangeMethod::kNative) ==
      static_cast<std::ptrdiff_t>(chosen.size()))
    chosen.clear();
  return chosen;
}

}  // namespace motley::synth
