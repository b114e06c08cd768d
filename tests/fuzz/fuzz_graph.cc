#include "motley/base/check.h"
#include "motley/graph/graph_text.h"
#include "motley/graph/layers.h"
#include "motley/graph/work.h"
#include "tests/fuzz/text_of.h"

/// Any text gives a graph or a message; a graph prints and reads back equal, and what relies on
/// its verification holds.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto graph = motley::graph::parse_graph(motley::fuzz::text_of(data, size), "f");
  if (!graph) return 0;
  const std::string text = motley::graph::print_graph(*graph);
  const auto again = motley::graph::parse_graph(text, "f");
  MOTLEY_CHECK(again.has_value() && *again == *graph && print_graph(*again) == text);
  motley::graph::Sizes sizes;
  for (const auto& named : graph->sizes) sizes[named.name] = named.max;
  motley::graph::total_work(*graph, sizes);
  std::size_t ops = 0;
  for (const auto& layer : motley::graph::find_layers(*graph)) ops += layer.ops.size();
  MOTLEY_CHECK(ops == graph->ops.size());
  return 0;
}
