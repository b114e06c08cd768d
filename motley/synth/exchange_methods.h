#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::synth {

/// By exchange of a program whose devices are one group, in the order of the transfer lane; empty:
/// all native.
using ExchangeMethods = std::vector<ExchangeMethod>;

/// Has the exchanges of a lowered program carried out so. The result is the same but for the order
/// in which sums are added up. Stale error where the program has another number of exchanges, usage
/// error where an operator has no such way.
Result<void> set_methods(program::Program& program, const ExchangeMethods& methods);

/// The operators of the exchanges ("motley::all_gather"), in order.
std::vector<std::string> exchange_operators(const program::Program& program);

/// Seconds of a collective ("motley::all_gather.grouped") of as many bytes
/// (program::priced_bytes); infinite if it cannot be done or nobody knows.
using ExchangeSeconds = std::function<double(std::string_view name, double bytes)>;

/// The quickest way for each exchange of a lowered program, which is native; where the gain is less
/// than a percent it stays so.
ExchangeMethods choose_methods(const program::Program& program, const ExchangeSeconds& seconds);

}  // namespace motley::synth
