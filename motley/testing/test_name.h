#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace motley::testing {

/// A name of the product's as one that GoogleTest takes: "equal_stages".
inline std::string test_name(std::string_view name) {
  std::string made(name);
  std::replace(made.begin(), made.end(), '-', '_');
  return made;
}

}  // namespace motley::testing
