#pragma once

#include <optional>

#include "motley/base/units.h"

namespace motley::cluster {

/// Memory that PyTorch holds on a GPU besides tensors, as measured.
struct Framework {
  Bytes context;  ///< fixed: context, libraries and their workspaces
  /// Bytes that the allocator keeps beyond each byte of tensors; none: no step was large enough.
  std::optional<double> reserve;
  bool operator==(const Framework&) const = default;
};

/// Keys by which `profile` reports and keeps these two values, as scratch memory of no operator:
/// the context in bytes, the reserve in bytes for each GiB of tensors.
inline constexpr const char* kContextKey = "framework context";
inline constexpr const char* kReserveKey = "framework reserve";
inline constexpr double kReserveUnit = 1 << 30;

}  // namespace motley::cluster
