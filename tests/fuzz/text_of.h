#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace motley::fuzz {

/// The fuzzer's bytes as text.
inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace motley::fuzz
