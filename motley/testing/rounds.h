#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace motley::testing {

/// Returns the number of random cases of a long sweep: `sample` in `make test`, all in `make
/// test-slow`, which sets MOTLEY_SLOW=1. The first cases are the same.
inline std::uint64_t rounds(std::uint64_t sample, std::uint64_t all) {
  const char* slow = std::getenv("MOTLEY_SLOW");
  return slow != nullptr && std::string_view(slow) == "1" ? all : sample;
}

}  // namespace motley::testing
