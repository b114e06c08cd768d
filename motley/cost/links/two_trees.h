#pragma once

#include <cstddef>
#include <vector>

namespace motley::cost {

/// Two binary trees over nodes 0 .. n - 1 where the inner nodes of one are leaves of the other
/// (Sanders, Speck, Traeff 2009). In the first the root is 0, odd numbers are leaves, and a number
/// with lowest set bit b is log2(b) above them. Its parent is the adjacent odd multiple of 2 b or,
/// beyond the end, the number without the bit.
std::size_t tree_parent(std::size_t number, std::size_t n);

/// Maps to the second tree, which is the first with other numbers, so that the inner ones are odd:
/// counted from the end if n is even, else shifted by one.
std::size_t twin(std::size_t number, std::size_t n);

/// Returns each node's distance from the root in the tree where it is deeper.
std::vector<int> tree_depths(std::size_t n);

}  // namespace motley::cost
