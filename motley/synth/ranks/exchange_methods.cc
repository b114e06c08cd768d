#include "motley/synth/ranks/exchange_methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "motley/program/parts.h"

namespace motley::synth {
namespace {

using plan::ExchangeWay;
using program::Instruction;

constexpr double kLeastGain = 0.01;

/// Finds exchanges by device; the n-th ones of all devices belong together.
template <typename Program>
auto find_exchanges(Program& program) {
  using Item = decltype(&program.devices[0].instructions[0]);
  std::vector<std::vector<Item>> exchanges(program.devices.size());
  for (std::size_t rank = 0; rank < exchanges.size(); ++rank)
    for (auto& instruction : program.devices[rank].instructions)
      if (instruction.lane == Lane::kTransfer && program::is_collective(instruction.op))
        exchanges[rank].push_back(&instruction);
  return exchanges;
}

/// One exchange as all members run it.
struct Joint {
  const program::Program& program;
  std::vector<const Instruction*> members;  // by rank
};

/// Returns the most elements that one member sends another; at least 1.
std::int64_t largest_part(const Joint& joint) {
  std::int64_t largest = 1;
  for (const Instruction* instruction : joint.members)
    if (const auto parts = program::find_exchange_parts(*instruction))
      for (const std::int64_t count : parts->counts) largest = std::max(largest, count);
  return largest;
}

ExchangeWay kind_of(const Joint& joint) {
  ExchangeWay kind{joint.members[0]->op, Bytes(0), largest_part(joint)};
  for (std::size_t rank = 0; rank < joint.members.size(); ++rank) {
    const program::DeviceProgram& device = joint.program.devices[rank];
    kind.bytes = std::max(kind.bytes, program::exchanged_bytes(device, *joint.members[rank]));
    for (const BufferId output : joint.members[rank]->outputs)
      kind.bytes = std::max(kind.bytes, device.buffer(output).bytes());
  }
  return kind;
}

/// Finds the way of a kind, or `end`.
template <typename Ways>
auto find_way(Ways& ways, const ExchangeWay& kind) {
  const auto key = [](const ExchangeWay& way) { return std::tie(way.op, way.bytes, way.largest); };
  return std::find_if(ways.begin(), ways.end(),
                      [&](const ExchangeWay& way) { return key(way) == key(kind); });
}

/// Calls `visit(kind, joint)` for each exchange of the program, in order.
template <typename Visit>
void for_each_exchange(const program::Program& program, const Visit& visit) {
  const auto exchanges = find_exchanges(program);
  for (std::size_t n = 0; n < exchanges[0].size(); ++n) {
    Joint joint{program, {}};
    for (const auto& of_device : exchanges) joint.members.push_back(of_device[n]);
    visit(kind_of(joint), joint);
  }
}

void set_method(Instruction& instruction, const ExchangeWay& way) {
  if (way.method == ExchangeMethod::kNative) return;
  instruction.overload = exchange_method_name(way.method);
  if (instruction.op == program::kAllToAll && way.method == ExchangeMethod::kPadded)
    instruction.arguments.push_back({way.largest});
}

/// Returns the largest bytes over the members, by which the simulator prices an exchange.
std::int64_t most_bytes(const Joint& joint, const ExchangeWay& way) {
  std::int64_t most = 0;
  for (std::size_t rank = 0; rank < joint.members.size(); ++rank) {
    Instruction tried = *joint.members[rank];
    set_method(tried, way);
    most = std::max(most, program::priced_bytes(joint.program.devices[rank], tried).value);
  }
  return most;
}

ExchangeMethod fastest(const Joint& joint, ExchangeWay way, const ExchangeSeconds& seconds) {
  ExchangeMethod best = ExchangeMethod::kNative;
  double least = 0;
  for (const ExchangeMethod method : program::methods_of(way.op)) {
    way.method = method;
    const auto bytes = static_cast<double>(most_bytes(joint, way));
    const double time = seconds(program::collective_name(way.op, method), bytes);
    if (method != ExchangeMethod::kNative && !(time < least * (1 - kLeastGain))) continue;
    best = method;
    least = time;
  }
  return best;
}

Result<void> check_way(const ExchangeWay& way, bool is_there) {
  const std::string kind =
      fmt::format("{} of {} bytes with parts of {}", way.op, way.bytes.value, way.largest);
  if (!is_there)
    return stale_error("synth.stale-plan",
                       fmt::format("the plan says how {} is carried out, its program has none; "
                                   "plan again",
                                   kind));
  const auto known = program::methods_of(way.op);
  if (std::find(known.begin(), known.end(), way.method) != known.end()) return {};
  return usage_error("synth.exchange-method",
                     fmt::format("{} of the plan is {}, which it cannot be", kind,
                                 exchange_method_name(way.method)));
}

}  // namespace

Result<void> set_methods(program::Program& program, const ExchangeWays& ways) {
  if (ways.empty()) return {};
  std::vector<std::size_t> places;  // by exchange: index in `ways`
  std::vector<char> is_there(ways.size() + 1, 0);
  for_each_exchange(program, [&](const ExchangeWay& kind, const Joint&) {
    places.push_back(static_cast<std::size_t>(find_way(ways, kind) - ways.begin()));
    is_there[places.back()] = 1;
  });
  for (std::size_t i = 0; i < ways.size(); ++i)
    MOTLEY_RETURN_IF_ERROR(check_way(ways[i], is_there[i] != 0));
  for (const auto& of_device : find_exchanges(program))
    for (std::size_t n = 0; n < of_device.size(); ++n)
      if (places[n] < ways.size()) set_method(*of_device[n], ways[places[n]]);
  return {};
}

ExchangeWays find_exchange_kinds(const program::Program& program) {
  ExchangeWays kinds;
  for_each_exchange(program, [&](const ExchangeWay& kind, const Joint&) {
    if (find_way(kinds, kind) == kinds.end()) kinds.push_back(kind);
  });
  return kinds;
}

ExchangeWays choose_methods(const program::Program& program, const ExchangeSeconds& seconds) {
  ExchangeWays chosen;
  for_each_exchange(program, [&](const ExchangeWay& kind, const Joint& joint) {
    if (find_way(chosen, kind) != chosen.end()) return;
    chosen.push_back(kind);
    chosen.back().method = fastest(joint, kind, seconds);
  });
  std::erase_if(chosen,
                [](const ExchangeWay& way) { return way.method == ExchangeMethod::kNative; });
  return chosen;
}

ExchangeWays common_ways(ExchangeWays ways, const ExchangeWays& others) {
  std::erase_if(ways, [&](const ExchangeWay& way) {
    return std::find(others.begin(), others.end(), way) == others.end();
  });
  return ways;
}

}  // namespace motley::synth
