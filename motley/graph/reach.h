#pragma once

#include <cstddef>
#include <vector>

#include "motley/graph/graph.h"

namespace motley::graph {

/// Returns whether training needs the output, which is true of all but extra ones.
bool is_wanted(const Output& output);

/// Marks every operator that some values depend on.
class Reach {
 public:
  explicit Reach(const Graph& graph) : graph_(graph), marked_(graph.ops.size(), 0) {}

  void add(ValueId value) { mark_producer(value); }
  /// Propagates the marks backwards. O(graph).
  void close();
  bool holds(std::size_t op) const { return marked_[op] != 0; }
  const std::vector<char>& marks() const { return marked_; }

 private:
  void mark_producer(ValueId value);
  const Graph& graph_;
  std::vector<char> marked_;  // by operator
};

/// Returns the operators that a wanted output depends on.
Reach find_live(const Graph& graph);

}  // namespace motley::graph
