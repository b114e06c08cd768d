#include "motley/cost/links/two_trees.h"

#include <algorithm>

namespace motley::cost {

std::size_t tree_parent(std::size_t number, std::size_t n) {
  const std::size_t bit = number & (~number + 1);
  const std::size_t above = (number & (2 * bit)) != 0 ? number - bit : number + bit;
  return above < n ? above : number - bit;
}

std::size_t twin(std::size_t number, std::size_t n) {
  return n % 2 == 0 ? n - 1 - number : (number + 1) % n;
}

std::vector<int> tree_depths(std::size_t n) {
  std::vector<int> depths(n, 0);
  for (std::size_t number = 0; number < n; ++number) {
    int depth = 0;
    for (std::size_t at = number; at != 0; at = tree_parent(at, n)) ++depth;
    for (const std::size_t node : {number, twin(number, n)})
      depths[node] = std::max(depths[node], depth);
  }
  return depths;
}

}  // namespace motley::cost
