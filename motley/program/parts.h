#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/exchange_method.h"
#include "motley/program/program.h"

namespace motley::program {

constexpr std::string_view kAllReduce = "motley::all_reduce";
constexpr std::string_view kAllGather = "motley::all_gather";
constexpr std::string_view kReduceScatter = "motley::reduce_scatter";
constexpr std::string_view kAllToAll = "motley::all_to_all";

/// Returns whether it is one of the four operators that need a group.
bool is_collective(std::string_view op);

/// Returns the methods that can run a collective; the native one is the first.
std::span<const ExchangeMethod> methods_of(std::string_view op);
/// Returns the method that a collective's overload names; none if its operator has no such method.
std::optional<ExchangeMethod> find_method(const Instruction& instruction);
/// Returns "motley::all_gather.grouped"; the native method has no overload.
std::string collective_name(std::string_view op, ExchangeMethod method);
/// The parts of such a name; other names are operators with the native method.
struct NamedCollective {
  std::string_view op;
  ExchangeMethod method = ExchangeMethod::kNative;
};
NamedCollective split_collective_name(std::string_view name);

/// A collective whose members have parts of their own, read from its arguments. Counts are elements
/// of flat tensors by position in the group, zero allowed:
///   motley::all_gather(value, [counts]) -> result       counts[own] elements in, all out
///   motley::reduce_scatter(value, [counts]) -> result   all in, counts[own] of the sum out
///   motley::all_to_all(value, [counts], [receives]) -> result
///   motley::all_to_all.padded(value, [counts], [receives], cell) -> result
struct ExchangeParts {
  BufferId value, result;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> receives;  ///< of an all-to-all
  std::int64_t cell = 0;  ///< of a padded one: the most elements that any member sends to another
};
/// Returns none for other operators and for malformed arguments.
std::optional<ExchangeParts> find_exchange_parts(const Instruction& instruction);

/// A local operator on a tensor seen as [before, sum of extents, after]:
///   motley::cut(value, before, [extents], after) -> result   flat, part after part
///   motley::join(value, before, [extents], after) -> result  the inverse
///   motley::part(value, before, begin, after) -> result      its extent is the result's
struct TensorParts {
  BufferId value, result;
  std::int64_t before = 0, after = 0;
  std::vector<std::int64_t> extents;  ///< of cut and join
  std::int64_t begin = 0;             ///< of a part
};
/// Returns none for other operators and for malformed arguments.
std::optional<TensorParts> find_tensor_parts(const Instruction& instruction);

/// Describes a fault in the counts, dtypes and sizes of an instruction of these six operators on a
/// rank: "found counts of 2 members, wanted 3". Empty without fault. Requires valid ids and group.
std::string find_parts_fault(const Program& program, std::size_t rank,
                             const Instruction& instruction);

/// Returns the bytes of the even exchange that moves as much through its slowest member: the price
/// of an all-gather or reduce-scatter. n members have at most m and at least s elements, all
/// together B. Grouped, a member passes on all but the next one's part: n / (n - 1) (B - s). Else
/// it sends m to all: n m. Both are B for even parts. 3, 0 and 5 f32: 3 * 5 * 4 = 60; grouped 3 / 2
/// * 8 * 4 = 48.
Bytes even_bytes(ExchangeMethod method, const std::vector<std::int64_t>& counts,
                 std::int64_t element_size);

/// Returns the bytes that price an exchange, seen from one member. An all-to-all: the larger of
/// what it holds before and after (the largest over the members counts; a padded one holds a cell
/// for each member). Other exchanges of parts: even_bytes. Else: exchanged_bytes.
Bytes priced_bytes(const DeviceProgram& program, const Instruction& instruction);

/// Returns each member's bytes of an all-gather or reduce-scatter, native or hierarchical, whose
/// parts differ; else empty.
std::vector<Bytes> uneven_parts(const DeviceProgram& program, const Instruction& instruction);

}  // namespace motley::program
