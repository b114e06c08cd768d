#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace motley {

/// A dense index that cannot be mixed with another kind of index. -1 means "none".
template <typename Tag>
struct Id {
  std::int32_t value = -1;

  constexpr Id() = default;
  constexpr explicit Id(std::int64_t v) : value(static_cast<std::int32_t>(v)) {}
  constexpr bool is_none() const { return value < 0; }
  /// For indexing a vector; the id must not be none.
  constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
  constexpr auto operator<=>(const Id&) const = default;
};

using OpId = Id<struct OpTag>;                    ///< operator of a graph
using ValueId = Id<struct ValueTag>;              ///< value of a graph
using NodeId = Id<struct NodeTag>;                ///< host of a cluster
using DeviceId = Id<struct DeviceTag>;            ///< device of a cluster
using BufferId = Id<struct BufferTag>;            ///< buffer of a device program
using InstructionId = Id<struct InstructionTag>;  ///< instruction of a device program
using GroupId = Id<struct GroupTag>;              ///< group of ranks of a program
using Rank = Id<struct RankTag>;                  ///< position of a device in a program

}  // namespace motley

template <typename Tag>
struct std::hash<motley::Id<Tag>> {
  std::size_t operator()(motley::Id<Tag> id) const noexcept {
    return std::hash<std::int32_t>{}(id.value);
  }
};
