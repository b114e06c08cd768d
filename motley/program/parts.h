#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/program/program.h"

namespace motley::program {

constexpr std::string_view kAllReduce = "motley::all_reduce";
constexpr std::string_view kAllGather = "motley::all_gather";
constexpr std::string_view kReduceScatter = "motley::reduce_scatter";
constexpr std::string_view kAllToAll = "motley::all_to_all";

/// Is it one of the four operators that need a group?
bool is_collective(std::string_view op);

/// A collective whose members have parts of their own, by its arguments; elements of flat tensors
/// by position in the group, zero allowed:
///   motley::all_gather(value, [counts]) -> result       counts[own] elements in, all out
///   motley::reduce_scatter(value, [counts]) -> result   all in, counts[own] of the sum out
///   motley::all_to_all(value, [counts], [receives]) -> result
struct ExchangeParts {
  BufferId value, result;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> receives;  ///< of an all-to-all
};
/// None for other operators and for arguments of another form.
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
/// None for other operators and for arguments of another form.
std::optional<TensorParts> find_tensor_parts(const Instruction& instruction);

/// What is wrong with the counts, dtypes and sizes of an instruction of these six operators on
/// rank `rank`: "found counts of 2 members, wanted 3". Empty: nothing, or another operator. Its ids
/// and its group are sound.
std::string find_parts_fault(const Program& program, std::size_t rank,
                             const Instruction& instruction);

/// Bytes by which an exchange is priced, seen from one member: of uneven all-gathers and
/// reduce-scatters the whole as if every member had the largest part, which is what the slowest
/// member moves; of an all-to-all the larger of what the member holds before and after (the
/// largest over the members counts); else exchanged_bytes.
/// Example: an all-gather of 3, 0 and 5 f32: 3 * 5 * 4 = 60.
Bytes padded_bytes(const DeviceProgram& program, const Instruction& instruction);

}  // namespace motley::program
