#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"

namespace motley::synth {

/// One way per kind of exchange, for programs whose devices are one group.
using ExchangeWays = std::vector<plan::ExchangeWay>;

/// Sets the methods of a lowered program's exchanges. Only the order of summation changes. Stale
/// error if the program has no exchange of a kind, usage error if an operator has no such method.
Result<void> set_methods(program::Program& program, const ExchangeWays& ways);

/// Returns the kinds of exchange of a lowered program, as native, in program order.
ExchangeWays find_exchange_kinds(const program::Program& program);

/// Returns the seconds of a collective ("motley::all_gather.grouped") of these bytes
/// (program::priced_bytes); infinite if it is impossible or unknown.
using ExchangeSeconds = std::function<double(std::string_view name, double bytes)>;

/// Chooses the fastest method for each kind of exchange of a lowered, native program. Kinds that
/// gain less than a percent stay native and are left out.
ExchangeWays choose_methods(const program::Program& program, const ExchangeSeconds& seconds);

/// Returns the ways that two numbers of micro-batches have in common. Exchanges of the whole batch
/// are of a different kind for each number.
ExchangeWays common_ways(ExchangeWays ways, const ExchangeWays& others);

}  // namespace motley::synth
