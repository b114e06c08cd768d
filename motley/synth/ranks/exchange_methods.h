#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"

namespace motley::synth {

/// By kind of exchange of programs whose devices are one group.
using ExchangeWays = std::vector<plan::ExchangeWay>;

/// Has the exchanges of a lowered program carried out so. The result is the same but for the order
/// in which sums are added up. Stale error where the program has no exchange of a kind, usage error
/// where an operator has no such way.
Result<void> set_methods(program::Program& program, const ExchangeWays& ways);

/// The kinds of exchange of a lowered program, native, as they come first.
ExchangeWays find_exchange_kinds(const program::Program& program);

/// Seconds of a collective ("motley::all_gather.grouped") of as many bytes
/// (program::priced_bytes); infinite if it cannot be done or nobody knows.
using ExchangeSeconds = std::function<double(std::string_view name, double bytes)>;

/// The fastest way for each kind of exchange of a lowered program, which is native, but for those
/// that stay so: where the gain is less than a percent.
ExchangeWays choose_methods(const program::Program& program, const ExchangeSeconds& seconds);

/// Those that two numbers of micro-batches have in common, so that all have them: what is exchanged
/// of the whole batch is of another kind in each.
ExchangeWays common_ways(ExchangeWays ways, const ExchangeWays& others);

}  // namespace motley::synth
