#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace motley::data {

/// Widens unsigned tokens of `width` bytes, little-endian on every machine, to 64 bits.
inline void read_tokens(const std::byte* from, std::size_t width, std::int64_t count,
                        std::byte* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t token = 0;
    for (std::size_t b = width; b-- > 0;)
      token = token << 8 | std::to_integer<std::int64_t>(from[b]);
    std::memcpy(out, &token, sizeof token);
    from += width;
    out += sizeof token;
  }
}

}  // namespace motley::data
