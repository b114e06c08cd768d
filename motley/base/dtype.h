#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace motley {

/// Element types, named as in the graph's text form. kC64 is two kF32, kC128 two kF64. kNone is a
/// result that the operator leaves undefined.
enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kBool,
  kC64,
  kC128,
  kNone
};

/// Returns "f32", "none", ...
std::string_view dtype_name(DType dtype);
/// Inverts dtype_name; empty for an unknown name.
std::optional<DType> find_dtype(std::string_view name);
/// Returns the bytes of one element; 0 for kNone.
std::int64_t dtype_size(DType dtype);
bool is_floating(DType dtype);  ///< real: false for complex numbers
bool is_complex(DType dtype);

}  // namespace motley
