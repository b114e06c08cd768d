#pragma once

#include <cstddef>
#include <cstdint>

namespace motley::simulate {

/// Tasks, lanes and transfers are numbered in 32 bits: the number as an index.
inline std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

}  // namespace motley::simulate
