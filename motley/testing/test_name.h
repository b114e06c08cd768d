#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace motley::testing {

/// Converts a name of the product to one for GoogleTest: "equal_stages".
inline std::string test_name(std::string_view name) {
  std::string made(name);
  std::replace(made.begin(), made.end(), '-', '_');
  return made;
}

}  // namespace motley::testing
