#include "motley/graph/reach.h"

namespace motley::graph {

bool is_wanted(const Output& output) { return output.kind != OutputKind::kExtra; }

void Reach::close() {
  // Operators follow those that they depend on, so one pass is enough.
  for (std::size_t i = marked_.size(); i-- > 0;)
    if (marked_[i])
      for_each_value(graph_.ops[i].arguments, [&](ValueId value) { mark_producer(value); });
}

void Reach::mark_producer(ValueId value) {
  const OpId producer = graph_.value(value).producer;
  if (!producer.is_none()) marked_[producer.index()] = 1;
}

Reach find_live(const Graph& graph) {
  Reach live(graph);
  for (const Output& output : graph.outputs)
    if (is_wanted(output)) live.add(output.value);
  live.close();
  return live;
}

}  // namespace motley::graph
