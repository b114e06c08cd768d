#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::simulate {

/// Converts a 32-bit number of a task, lane or transfer to an index.
inline std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

}  // namespace motley::simulate
