#pragma once

#include <string>

namespace motley {

// Arguments of operators that are the same in a graph and in a program.

struct NoneArgument {
  bool operator==(const NoneArgument&) const = default;
};
/// dtype(f32), layout(strided), device(local), memory_format(contiguous).
struct KeywordArgument {
  std::string kind, word;
  bool operator==(const KeywordArgument&) const = default;
};

}  // namespace motley
