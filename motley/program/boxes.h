#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/program/program.h"

namespace motley::program {

inline constexpr std::string_view kTake = "motley::take";
inline constexpr std::string_view kPut = "motley::put";

/// Elements of a contiguous tensor seen flat: from `begin` on, by extent and stride of each side,
/// the outermost first. In an argument list [begin, extent, stride, extent, stride, ...].
///
///   columns 2 and 3 of f32[4, 6]: [2, 4, 6, 2, 1]
struct Box {
  struct Side {
    std::int64_t extent = 1, stride = 1;
    bool operator==(const Side&) const = default;
  };
  std::int64_t begin = 0;
  std::vector<Side> sides;  ///< none: one element
  bool operator==(const Box&) const = default;

  std::int64_t elements() const;
};

Argument box_argument(const Box& box);

/// A copy between boxes, read from its arguments:
///   motley::take([values], [boxes]) -> result            one after the other into a flat tensor
///   motley::put([targets], [boxes], [values], [boxes])   in place; boxes of the same extents
struct BoxCopies {
  std::vector<std::pair<BufferId, Box>> from;
  std::vector<std::pair<BufferId, Box>> into;  ///< of a put
  BufferId result;                             ///< of a take
  std::int64_t elements = 0;                   ///< copied in all
};
/// Returns none for other operators and for malformed arguments.
std::optional<BoxCopies> find_box_copies(const Instruction& instruction);

/// Describes a fault in the boxes, dtypes and sizes of a take or a put: "found a box of elements up
/// to 24 of %1, which has 24". Empty without fault or for other operators. Requires valid ids.
std::string find_box_fault(const DeviceProgram& device, const Instruction& instruction);

}  // namespace motley::program
